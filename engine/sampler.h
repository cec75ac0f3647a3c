// Logits -> token. Pure and per row: rows never influence each other.
//
// Order of the transforms, as in vLLM and Hugging Face: logit bias, repetition penalty, frequency and presence penalty,
// min_tokens mask, temperature, top-k, top-p, min-p. (vLLM's newer sampler has min-p before top-k; the kept set differs
// only where top-p cuts in between.) Greedy takes the best after the mask. Log-probabilities are of the unmodified
// distribution, in double. Ties are broken by the lower token id, everywhere.
//
// The draw is a Gumbel-max in its exponential form: every token that is left gets a number e = -log(u) / p, with u
// keyed by (seed, choice, position, purpose) and the token's own id, and the smallest e wins. So the token at a
// position is a function of that position's key and distribution: not of the batch, the worker, the order of the
// candidates or what was sampled before. It also means that a drafter that uses the same key shares the noise.
//
// Repeatable on every machine, GPUs included: all of it is the arithmetic of kernels/sampling_math.h. Where top-p cuts
// integers decide, the weights in units of at most 2^-40; where it cuts among equals, the lower ids stay.
//
// Limits: NaN counts as -infinity. Whatever the logits are, the result is a token of the vocabulary, and one that is
// not masked unless min_tokens masks them all.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "engine/sampling_params.h"
#include "engine/token_counts.h"

namespace sluice::engine {

struct Sampled {
  int32_t token = 0;
  float logprob = 0.0f;                        // set when params.logprobs >= 0
  std::vector<std::pair<int32_t, float>> top;  // params.logprobs best, best first
};

struct SampleKey {
  uint64_t seed = 0;
  int choice = 0;
  int position = 0;  // index of the token that is drawn, in prompt + answer
};

// logits is [vocab], used as scratch; only its NaNs are changed in the end. Not empty. generated: tokens of this answer
// so far (for min_tokens). counts: of the tokens before this one; may be null unless params.penalizes().
// top_k: exactly the k best. top_p: the fewest best tokens whose share of what top-k left reaches top_p, at least one.
// min_p: tokens at least min_p times as probable as the best; the best always stays.
// maxima: of the blocks of these logits (kernels::HeadParams::maxima), or nothing; they only make it faster.
Sampled Sample(std::span<float> logits, const SamplingParams& params, const SampleKey& key, int generated,
               const TokenCounts* counts = nullptr, std::span<const float> maxima = {});

// The distribution that Sample draws from: [vocab], sums to 1; one 1 where it is greedy. Costs more than a draw.
std::vector<double> Distribution(std::span<float> logits, const SamplingParams& params, int generated,
                                 const TokenCounts* counts = nullptr);

// A token that is given, such as the prompt's next: its log-probability, and the `top` best. logits as for Sample.
Sampled Score(std::span<float> logits, int32_t token, int top);

}  // namespace sluice::engine
