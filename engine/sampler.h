// Logits -> token. Pure and per row: rows never influence each other.
//
// Order of the transforms: min_tokens mask, temperature, top-k, top-p, min-p. The draw is keyed by (seed, choice,
// position, purpose) with a counter-based generator, so it depends on nothing else: not on the batch, the worker or what
// was sampled before. Log-probabilities are of the unmodified distribution. Ties are broken by the lower token id.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "engine/sampling_params.h"

namespace sluice::engine {

struct Sampled {
  int32_t token = 0;
  float logprob = 0.0f;                             // set when params.logprobs >= 0
  std::vector<std::pair<int32_t, float>> top;       // params.logprobs best, best first
};

struct SampleKey {
  uint64_t seed = 0;
  int choice = 0;
  int position = 0;  // index of the token that is drawn, in prompt + answer
};

// logits is [vocab], overwritten as scratch. generated: tokens of this answer so far (for min_tokens).
Sampled Sample(std::span<float> logits, const SamplingParams& params, const SampleKey& key, int generated);

}  // namespace sluice::engine
