// The last part of a step: what was computed counts, new tokens join their sequences, and those that are over, park or
// fork do so.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/runner/step.h"
#include "engine/sampler.h"
#include "engine/sequence_table.h"

namespace sluice::engine {

// One new token of one request.
struct TokenOutput {
  uint64_t id = 0;
  int choice = 0;
  int index = 0;    // of the generated tokens, from 0; a replay goes on counting
  Sampled sampled;  // the token that ends an answer (eos, stop id) is reported too
  // != kNone: this choice is over and its blocks are free; one that parks keeps them.
  FinishReason finish = FinishReason::kNone;
  bool last = false;      // with `finish`: all choices of the request are over
  int cached_tokens = 0;  // of the prompt: found in the prefix cache
  std::vector<Sampled> prompt;  // with the first token of the first choice: the log-probabilities of tokens[1, n)
};

// How far a sequence has come: tokens [0, computed) have their KV in its blocks.
struct SequenceProgress {
  uint64_t id = 0;
  int computed = 0;
};

struct StepOutput {
  std::vector<TokenOutput> tokens;         // in the plan's order; those of a sequence in theirs
  std::vector<SequenceProgress> progress;  // of every sequence that it computed tokens of
  uint64_t accepted_drafts = 0;
};

// REQUIRES: the step was executed, and every step before it was committed.
StepOutput Commit(const StepWork& step, SequenceTable& sequences);

}  // namespace sluice::engine
