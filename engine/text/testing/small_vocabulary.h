// A small byte-level BPE vocabulary for tests: all 256 bytes, a few merges, control tokens and a user-defined one.
#pragma once

#include <cstdint>
#include <string_view>

#include "engine/files/tokenizer_data.h"

namespace sluice::engine {

// Ids: the control tokens 0 to 3 (<|end|>, <|im_start|>, <|im_end|>, <|im_end|>|), the user-defined <tool> 4, byte b at
// kFirstByte + b, then the results of the merges in their order.
inline constexpr int32_t kFirstByte = 5;
inline constexpr int32_t kFirstMerge = kFirstByte + 256;

// Merges of raw bytes, best first: "t h", "th e", "Ġ the", ...
TokenizerData SmallVocabulary(std::string_view pre_tokenizer = "gpt-2");

// The id of a token by its bytes or name; fails the test if there is none.
int32_t IdOf(const TokenizerData& data, std::string_view token);

}  // namespace sluice::engine
