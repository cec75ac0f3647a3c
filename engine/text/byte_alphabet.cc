#include "engine/text/byte_alphabet.h"

#include <array>
#include <cstdint>

namespace sluice::engine {
namespace {

constexpr int kCodePoints = 0x144;  // all characters of the alphabet are below

constexpr bool StandsForItself(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct Alphabet {
  std::array<uint16_t, 256> code_point{};
  std::array<int16_t, kCodePoints> byte{};  // by code point; -1: not of the alphabet
};

constexpr Alphabet MakeAlphabet() {
  Alphabet alphabet;
  alphabet.byte.fill(-1);
  uint16_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const uint16_t code_point = StandsForItself(byte) ? static_cast<uint16_t>(byte) : next++;
    alphabet.code_point[byte] = code_point;
    alphabet.byte[code_point] = static_cast<int16_t>(byte);
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = MakeAlphabet();

}  // namespace

std::optional<std::string> BytesFromSpelling(std::string_view spelling) {
  std::string bytes;
  bytes.reserve(spelling.size());
  for (size_t i = 0; i < spelling.size(); ++i) {
    int code_point = static_cast<uint8_t>(spelling[i]);
    if (code_point >= 0x80) {  // two bytes of UTF-8: U+0080 to U+07FF
      if (code_point < 0xC2 || code_point > 0xDF || i + 1 == spelling.size()) return std::nullopt;
      const auto second = static_cast<uint8_t>(spelling[++i]);
      if ((second & 0xC0) != 0x80) return std::nullopt;
      code_point = (code_point & 0x1F) << 6 | (second & 0x3F);
    }
    if (code_point >= kCodePoints || kAlphabet.byte[code_point] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(kAlphabet.byte[code_point]));
  }
  return bytes;
}

std::string SpellingOfBytes(std::string_view bytes) {
  std::string spelling;
  for (const char c : bytes) {
    const uint16_t code_point = kAlphabet.code_point[static_cast<uint8_t>(c)];
    if (code_point < 0x80) {
      spelling.push_back(static_cast<char>(code_point));
    } else {
      spelling.push_back(static_cast<char>(0xC0 | code_point >> 6));
      spelling.push_back(static_cast<char>(0x80 | (code_point & 0x3F)));
    }
  }
  return spelling;
}

}  // namespace sluice::engine
