// What decides which token follows: complete (no defaults left open), validated by the router, carried to the workers.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"

namespace sluice::engine {

struct SamplingParams {
  float temperature = 0.0f;  // 0: greedy
  float top_p = 1.0f;
  int top_k = 0;  // 0: all
  float min_p = 0.0f;
  uint64_t seed = 0;
  int logprobs = -1;   // alternatives per token; -1: no logprobs at all
  int max_tokens = 0;  // generated tokens, >= 1
  int min_tokens = 0;  // no end-of-sequence and no stop token before
  bool ignore_eos = false;
  std::vector<int32_t> eos_ids;
  std::vector<int32_t> stop_ids;
};

// The engine's own gate: INVALID_ARGUMENT naming the field and its value. Ids outside the vocabulary are allowed in
// eos_ids and stop_ids (they never occur).
absl::Status Validate(const SamplingParams& params);

enum class FinishReason : uint8_t { kNone, kStop, kLength };

}  // namespace sluice::engine
