// What decides which token follows: complete (no defaults left open), validated by the router, carried to the workers.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"

namespace sluice::engine {

struct SamplingParams {
  float temperature = 0.0f;  // 0: greedy
  float top_p = 1.0f;
  int top_k = 0;  // 0: all
  float min_p = 0.0f;
  float repetition_penalty = 1.0f;  // > 1 makes tokens of prompt and answer less likely
  float presence_penalty = 0.0f;    // subtracted once from what the answer has
  float frequency_penalty = 0.0f;   // subtracted as often as the answer has it
  uint64_t seed = 0;
  int logprobs = -1;   // alternatives per token; -1: no logprobs at all
  int max_tokens = 0;  // generated tokens, >= 1
  int min_tokens = 0;  // no end-of-sequence and no stop token before
  bool ignore_eos = false;
  std::vector<int32_t> eos_ids;
  std::vector<int32_t> stop_ids;
  std::vector<std::pair<int32_t, float>> logit_bias;  // added to the logit; ids ascend, each once

  bool penalizes() const { return repetition_penalty != 1.0f || presence_penalty != 0.0f || frequency_penalty != 0.0f; }
};

// The engine's own gate: INVALID_ARGUMENT naming the field and its value. Ids outside the vocabulary are allowed in
// eos_ids, stop_ids and logit_bias (they never occur).
absl::Status Validate(const SamplingParams& params);

enum class FinishReason : uint8_t { kNone, kStop, kLength };

// Whether an answer ends with `token` as its `generated`-th token, as far as the parameters say; the end of the context
// is the caller's. A stop at the last token is a stop. The sampler keeps ending tokens away before min_tokens; they are
// nothing special here either, since a mask over the whole vocabulary is void.
FinishReason FinishAfter(const SamplingParams& params, int32_t token, int generated);

}  // namespace sluice::engine
