// One step on its way: plan -> inputs -> execute -> commit. The thread that plans makes it and commits it; in between
// it belongs to whoever executes it, who sees none of the sequences.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "engine/sample_state.h"
#include "engine/sampler.h"
#include "engine/scheduler.h"
#include "kernels/backend.h"

namespace sluice::engine {

// What a backend reads. Layouts as in kernels::StepBatch.
struct StepInputs {
  std::vector<int32_t> tokens;  // [rows]; kUnknownToken where the step before brings it
  std::vector<int32_t> row_begin, context_len, block_table, logit_rows;
  int max_blocks = 0;

  kernels::StepBatch batch() const;
};

inline constexpr int32_t kUnknownToken = -1;

// What is drawn from, and scored by, the rows of logits of one chunk: first `targets`, then the sample and its drafts.
struct SampleTask {
  std::vector<std::shared_ptr<SampleState>> states;  // the sequence's, then of the choices that fork off here
  int unknown_row = -1;                              // of `tokens`, for states[0]->last_token
  std::vector<int32_t> targets;                      // prompt tokens to score, a row each
  int target_logprobs = 0;                           // alternatives of each
  std::vector<int32_t> drafts;                       // a row each, after the row that samples
  bool samples = false;
};

struct SampleResult {
  std::vector<Sampled> scored;    // of `targets`
  std::vector<Sampled> tokens;    // the accepted drafts and one more; empty if nothing samples
  std::vector<Sampled> siblings;  // first tokens of the choices that fork off
};

struct StepWork {
  uint64_t number = 0;
  StepPlan plan;
  StepInputs inputs;
  std::vector<SampleTask> tasks;      // by chunk
  std::vector<SampleResult> results;  // by chunk, after the execution
  // Called by whoever executes the step, when the KV of all its rows is final in the layers [0, layers); layers grows
  // to all of them. May be empty; who plans the step sets it before it is executed.
  std::function<void(int layers)> after_layer;
  double execute_seconds = 0, sample_seconds = 0;
  int64_t bytes_to_host = 0;  // results that a device brought so far, of this and all steps before
};

// A plan as a step; everything of the sequences that the execution needs is copied.
StepWork MakeStep(uint64_t number, StepPlan plan, int block_size);

}  // namespace sluice::engine
