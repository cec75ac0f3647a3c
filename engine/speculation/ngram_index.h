// Where the last tokens of a text occurred before: the longest suffix of min..max tokens that did, and its most recent
// earlier occurrence.
//
// Cost: a few hash insertions per new token, a few look-ups per question; about 25 bytes per token and length.
// Limit: two n-grams with the same 64-bit hash hide one another; a match is compared token by token, so it is never
// wrong.
#pragma once

#include <cstdint>
#include <span>

#include "absl/container/flat_hash_map.h"

namespace sluice::engine {

class NgramIndex {
 public:
  // 1 <= min_tokens <= max_tokens.
  NgramIndex(int min_tokens, int max_tokens);

  struct Match {
    int next = -1;   // tokens[next] followed the earlier occurrence; -1: there is none
    int length = 0;  // of the suffix that matched
  };

  // REQUIRES: `tokens` extends those of the call before.
  Match Find(std::span<const int32_t> tokens);

 private:
  int min_tokens_, max_tokens_;
  int indexed_ = 0;                                // n-grams that end at or before this length are in
  absl::flat_hash_map<uint64_t, int32_t> newest_;  // hash of an n-gram -> where its newest occurrence ends
};

}  // namespace sluice::engine
