// What an engine of some options allocates: the same on all ranks of an instance, but for the heads of pools that each
// has for itself.
#pragma once

#include "absl/status/statusor.h"
#include "engine/engine.h"
#include "engine/files/model_config.h"
#include "engine/model/decoder.h"
#include "kernels/backend.h"
#include "kernels/kv_layout.h"

namespace sluice::engine {

struct EngineShape {
  DecoderLimits limits;
  kernels::KvLayout layout;  // of all ranks
  kernels::KvLayout pool;    // of this rank's pool
  int num_blocks = 0;        // 0: SizePool's to say
};

// As Engine::Create about options that contradict each other or the model.
absl::StatusOr<EngineShape> ShapeOf(const ModelConfig& config, const kernels::Backend& backend,
                                    const EngineOptions& options);

// Once the weights are in their place: how many blocks the rest of the device's memory has room for, where that is to
// decide, and the least of all ranks where each has a pool of its own (they tell each other). RESOURCE_EXHAUSTED where
// not even one context fits.
absl::Status SizePool(const kernels::Backend& backend, const EngineOptions& options, EngineShape& shape);

}  // namespace sluice::engine
