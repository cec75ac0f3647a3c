// The sampler's loops over a whole vocabulary. Each is compiled twice, for AVX2 and for the least CPU, and gives the
// same bits: lanes and order are fixed, and nothing is fused.
#pragma once

#include <cstdint>
#include <span>

namespace sluice::engine {

// NaN becomes -infinity. maxima [kernels::NumLogitBlocks(logits)]: the largest of each block. Returns the largest of
// all; -infinity for no logits.
float CleanAndMax(std::span<float> logits, std::span<float> maxima);

// out[i] = exp((x[i] - max) / temperature), with max - max = 0 even for infinities. REQUIRES: max is the largest;
// temperature > 0.
void ExpWeights(std::span<const float> x, float max, float temperature, double* out);

// kernels::WeightClass of each. As for ExpWeights.
void WeightClasses(std::span<const float> x, float max, float temperature, int* out);

// The sum of ExpWeights at temperature 1, in the order of kernels/sampling_math.h.
double ExpSum(std::span<const float> x, float max);

// False: none of these tokens can win a race of exponentials (sampler_draw.h) that stands at `best`, with the weights
// of ExpWeights and u their numbers. It costs a fraction of the weights, which are only bounded. As for ExpWeights.
bool AnyMayWin(std::span<const float> x, float max, float temperature, const double* u, double best);

// The versions for the least CPU, for tests.
namespace least_cpu {
float CleanAndMax(std::span<float> logits, std::span<float> maxima);
void ExpWeights(std::span<const float> x, float max, float temperature, double* out);
void WeightClasses(std::span<const float> x, float max, float temperature, int* out);
double ExpSum(std::span<const float> x, float max);
bool AnyMayWin(std::span<const float> x, float max, float temperature, const double* u, double best);
}  // namespace least_cpu

}  // namespace sluice::engine
