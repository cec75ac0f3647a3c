// What each known architecture needs of a model file: its hyperparameters and its tensors.
//
// A new architecture is one row of the table in architectures.cc. Promise: an OK config is sane (every count within its
// limit, heads divide, the rotary part fits a head, no feature that would be silently ignored), and every tensor of the
// file is one that the architecture knows, of the right shape: a wrong answer is never an answer.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/files/gguf.h"
#include "engine/files/model_config.h"

namespace sluice::engine {

struct TensorSpec {
  std::string name;
  int64_t rows = 0;  // 1: a vector
  int64_t cols = 0;
  bool required = true;
};

struct Architecture {
  ModelConfig config;
  std::vector<TensorSpec> tensors;
};

// UNIMPLEMENTED: an unknown architecture, or a feature of a known one that isn't built. Otherwise INVALID_ARGUMENT.
absl::StatusOr<Architecture> ReadArchitecture(const Gguf& file);

// All required tensors are there, all tensors are known, all shapes are right.
absl::Status CheckTensors(const Gguf& file, const Architecture& architecture);

}  // namespace sluice::engine
