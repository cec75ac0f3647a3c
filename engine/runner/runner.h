// Carries out the plans of a scheduler: step inputs -> execute (the decoder) -> commit.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/decoder.h"
#include "engine/runner/commit.h"
#include "engine/runner/step_inputs.h"
#include "engine/scheduler.h"
#include "kernels/backend.h"

namespace sluice::engine {

class Runner {
 public:
  // `decoder` and `kv` must outlive the runner. max_logits: rows that one step may sample.
  Runner(Decoder* decoder, kernels::KvPool* kv, int max_logits, int max_context);

  // REQUIRES: the plan is not empty. After an error the sequences are unchanged, but the device is unusable.
  absl::StatusOr<std::vector<TokenOutput>> Run(const StepPlan& plan);

 private:
  Decoder* decoder_;
  kernels::KvPool* kv_;
  int max_context_;
  StepInputs inputs_;
  std::vector<float> logits_;  // [max_logits][vocab]
};

}  // namespace sluice::engine
