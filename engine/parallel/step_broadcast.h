// What the other ranks of an instance have to know of a step: its inputs, from rank 0 through the collective. Rank 0
// alone plans, copies blocks (of the one KV pool that all ranks share), samples and commits; the others follow
// (Follow).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/runner/step.h"
#include "kernels/collective.h"

namespace sluice::engine {

class StepBroadcast {
 public:
  explicit StepBroadcast(kernels::Collective* collective) : collective_(collective) {}

  // On rank 0. UNAVAILABLE once a rank is lost.
  absl::Status Send(const StepInputs& inputs);
  absl::Status SendStop();

  // On the others: waits for as long as it takes; nothing when rank 0 has stopped.
  absl::StatusOr<std::optional<StepInputs>> Receive();

 private:
  absl::Status Exchange(std::vector<int32_t>& words);

  kernels::Collective* const collective_;
};

}  // namespace sluice::engine
