// What an engine of some options allocates, known before it does: the same on all ranks of an instance. Pure.
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
  int num_blocks = 0;
};

// As Engine::Create about options that contradict each other or the model.
absl::StatusOr<EngineShape> ShapeOf(const ModelConfig& config, const kernels::Backend& backend,
                                    const EngineOptions& options);

}  // namespace sluice::engine
