#include "engine/text/utf8.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace sluice::engine {
namespace {

// What may follow a lead byte: its second byte is in [low, high], the others are in [0x80, 0xBF]. The narrowed second
// byte excludes overlong forms, surrogates and code points above U+10FFFF.
struct Lead {
  size_t length = 0;  // of the whole character; 0: not a lead byte
  uint8_t low = 0x80;
  uint8_t high = 0xBF;
};

Lead LeadOf(uint8_t byte) {
  if (byte < 0x80) return {.length = 1};
  if (byte < 0xC2) return {};
  if (byte < 0xE0) return {.length = 2};
  if (byte == 0xE0) return {.length = 3, .low = 0xA0};
  if (byte == 0xED) return {.length = 3, .high = 0x9F};
  if (byte < 0xF0) return {.length = 3};
  if (byte == 0xF0) return {.length = 4, .low = 0x90};
  if (byte < 0xF4) return {.length = 4};
  if (byte == 0xF4) return {.length = 4, .high = 0x8F};
  return {};
}

}  // namespace

Utf8Step NextUtf8(std::string_view text) {
  const Lead lead = LeadOf(static_cast<uint8_t>(text[0]));
  if (lead.length == 0) return {1, Utf8Kind::kInvalid};
  for (size_t i = 1; i < lead.length; ++i) {
    if (i == text.size()) return {i, Utf8Kind::kIncomplete};
    const auto byte = static_cast<uint8_t>(text[i]);
    const uint8_t low = i == 1 ? lead.low : 0x80;
    const uint8_t high = i == 1 ? lead.high : 0xBF;
    if (byte < low || byte > high) return {i, Utf8Kind::kInvalid};
  }
  return {lead.length, Utf8Kind::kCharacter};
}

size_t IncompleteTail(std::string_view text) {
  // The lead byte of an incomplete character is the last byte of the text that is not a continuation byte.
  for (size_t tail = 1; tail <= std::min<size_t>(3, text.size()); ++tail) {
    const std::string_view end = text.substr(text.size() - tail);
    if ((static_cast<uint8_t>(end[0]) & 0xC0) == 0x80) continue;
    const Utf8Step step = NextUtf8(end);
    return step.kind == Utf8Kind::kIncomplete && step.length == tail ? tail : 0;
  }
  return 0;
}

size_t ValidPrefix(std::string_view text) {
  constexpr uint64_t kHighBits = 0x8080808080808080;
  size_t at = 0;
  while (at < text.size()) {
    for (uint64_t word; text.size() - at >= sizeof(word); at += sizeof(word)) {
      std::memcpy(&word, text.data() + at, sizeof(word));
      if ((word & kHighBits) != 0) break;
    }
    if (at == text.size()) break;
    const Utf8Step step = NextUtf8(text.substr(at));
    if (step.kind != Utf8Kind::kCharacter) break;
    at += step.length;
  }
  return at;
}

}  // namespace sluice::engine
