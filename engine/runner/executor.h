// Executes steps in the order of their numbers: block copies, the forward pass, sampling. May run in another thread
// than the one that plans and commits; it touches the step, the device and the sample states, nothing else.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "engine/model/decoder.h"
#include "engine/parallel/step_broadcast.h"
#include "engine/runner/device_sampling.h"
#include "engine/runner/sample_rows.h"
#include "engine/runner/step.h"
#include "kernels/backend.h"

namespace sluice::engine {

class Executor {
 public:
  // `decoder` and `kv` must outlive the executor. max_logits: rows of logits of a step. `seconds` is a clock, for the
  // statistics alone; it may be empty. `collective` reaches the other ranks, which follow; null: there are none.
  // device_sampling: what a device can sample it does; else it brings all logits.
  Executor(Decoder* decoder, kernels::KvPool* kv, int max_logits, DraftRule rule, std::function<double()> seconds,
           kernels::Collective* collective, bool device_sampling);
  ~Executor();  // the other ranks stop

  // Fills in step.results. After an error the device is unusable.
  absl::Status Execute(StepWork& step);

 private:
  absl::Status Compute(StepWork& step);
  std::vector<bool> PlanSampling(const StepWork& step);  // of each task, whether the device samples it

  Decoder* const decoder_;
  kernels::KvPool* const kv_;
  const DraftRule rule_;
  const std::function<double()> seconds_;
  std::optional<StepBroadcast> others_;
  bool failed_ = false;                   // then the others are ended by whoever started them
  std::optional<DeviceSampling> device_;  // null where the host samples everything
  const size_t max_logits_;
  std::unique_ptr<float[]> logits_;  // [max_logits][vocab], not cleared: pages come with their use
  std::unique_ptr<float[]> maxima_;  // [max_logits][kernels::NumLogitBlocks(vocab)]
};

}  // namespace sluice::engine
