// What the other ranks of an instance have to know of a step: its inputs, from rank 0 through the collective. Rank 0
// alone plans, samples and commits, and copies blocks where all ranks share one KV pool; the others follow (Follower).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/runner/step.h"
#include "kernels/collective.h"

namespace sluice::engine {

struct FollowedStep {
  StepInputs inputs;
  std::vector<BlockCopy> copies;  // before it, in a pool of the follower's own
  bool by_layer = false;          // rank 0 waits for its layers, so nobody records it
};

class StepBroadcast {
 public:
  explicit StepBroadcast(kernels::Collective* collective) : collective_(collective) {}

  // On rank 0. UNAVAILABLE once a rank is lost.
  absl::Status Send(const StepInputs& inputs, std::span<const BlockCopy> copies, bool by_layer);
  absl::Status SendStop();

  // On the others: waits for as long as it takes; nothing when rank 0 has stopped.
  absl::StatusOr<std::optional<FollowedStep>> Receive();

 private:
  absl::Status Exchange(std::vector<int32_t>& words);

  kernels::Collective* const collective_;
};

}  // namespace sluice::engine
