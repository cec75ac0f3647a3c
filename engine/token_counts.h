// What a sequence has said so far, as penalties need it: which tokens occur at all, and how often in the answer.
//
// Promise: a function of (tokens, num_prompt_tokens) alone. A replay, a preempted sequence and one that came from
// another worker rebuild the same counts from the same tokens; CatchUp costs what is new.
#pragma once

#include <cstdint>
#include <span>

#include "absl/container/flat_hash_map.h"

namespace sluice::engine {

class TokenCounts {
 public:
  TokenCounts() = default;
  TokenCounts(std::span<const int32_t> tokens, int num_prompt_tokens) { CatchUp(tokens, num_prompt_tokens); }

  // Counts tokens[counted(), end). tokens[0, num_prompt_tokens) is the prompt. REQUIRES: tokens extends what was
  // counted before; all of it is real (no placeholders).
  void CatchUp(std::span<const int32_t> tokens, int num_prompt_tokens);

  // One more token of the answer.
  void Add(int32_t token);

  int counted() const { return counted_; }

  // Token -> occurrences in the answer; 0: in the prompt only. In no order.
  const absl::flat_hash_map<int32_t, int>& occurrences() const { return occurrences_; }

 private:
  absl::flat_hash_map<int32_t, int> occurrences_;
  int counted_ = 0;
};

}  // namespace sluice::engine
