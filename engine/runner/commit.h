// The last part of a step: what was computed counts, and finished rows yield their sequence's next token.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/sampler.h"
#include "engine/scheduler.h"

namespace sluice::engine {

// One new token of one request.
struct TokenOutput {
  uint64_t id = 0;
  int choice = 0;
  int index = 0;    // of the generated tokens, from 0; a replay goes on counting
  Sampled sampled;  // the token that ends an answer (eos, stop id) is reported too
  // != kNone: the request is over and its blocks are free; one that parks keeps them.
  FinishReason finish = FinishReason::kNone;
};

// Advances every chunk's sequence and samples where the plan says so, in the plan's order; finished sequences are left
// for the caller to remove. logits is [chunks that sample][vocab], overwritten. max_context ends a sequence with
// kLength.
std::vector<TokenOutput> Commit(const StepPlan& plan, std::span<float> logits, int vocab, int max_context);

}  // namespace sluice::engine
