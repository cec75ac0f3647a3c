#include "engine/text/testing/random_text.h"

#include <cstdlib>
#include <iterator>

namespace sluice::engine {

uint64_t TestSeed() {
  const char* const seed = std::getenv("SLUICE_TEST_SEED");
  return seed != nullptr ? std::strtoull(seed, nullptr, 10) : std::random_device{}();
}

std::string RandomText::Bytes(int max_length) {
  // First and last of each range in Unicode's table of well-formed byte sequences, and their neighbours.
  static constexpr uint8_t kEdges[] = {0x00, 0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC1, 0xC2, 0xC3,
                                       0xDF, 0xE0, 0xE1, 0xEC, 0xED, 0xEE, 0xEF, 0xF0, 0xF1, 0xF3, 0xF4, 0xF5, 0xFF};
  std::string bytes;
  for (int n = Int(0, max_length); n > 0; --n) {
    const int byte = Int(0, 3) == 0 ? Int(0, 255) : kEdges[Int(0, std::size(kEdges) - 1)];
    bytes.push_back(static_cast<char>(byte));
  }
  return bytes;
}

std::string RandomText::Utf8(int max_length) {
  static constexpr const char* kPieces[] = {
      "a",      "the",          " the",        "hello", "A",  "1",    "12",   " ",   "  ",
      "    ",   "\n",           "\r\n",        "\t",    "'s", "'LL",  "!",    "...", "<",
      "<tool",  "|>",           "é",           "中",    "文", "か",   "한",   "😀",   "👍🏽",
      "\u200D", "\u00A0",       "\u3000",      "٣",     "½",  "\x01", "\x7F", "ſ",   "\u180E",
      "\u0301", "<|im_start|>", "<|im_end|>|", "aaaa",
  };
  std::string text;
  for (int n = Int(0, max_length); n > 0; --n) text += kPieces[Int(0, std::size(kPieces) - 1)];
  return text;
}

std::vector<std::string> RandomText::Split(const std::string& text) {
  std::vector<std::string> pieces;
  for (size_t at = 0; at < text.size();) {
    const size_t length = Int(0, 5);
    pieces.push_back(text.substr(at, length));
    at += length;
  }
  return pieces;
}

}  // namespace sluice::engine
