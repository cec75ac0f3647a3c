// The arithmetic of sampling that CPU and GPU share (engine/sampler.h says what it is for), so that both give the same
// bits. Everything is per token or in an order that is fixed here:
//  - A weight is exp((x - max) / temperature), 1 for the best.
//  - Masses, which decide where top-p cuts, are integers: weights in units of 1 / MassScale. So their sum has no order.
//  - The sum for log-probabilities is of double weights: in a block of kLogitBlock logits eight lanes (lane l sums l, l
//  +
//    8, ...) and one tree; blocks add in ascending order within a chunk of kSampleChunk logits, and so do the chunks.
#pragma once

#include <cstdint>

#include "kernels/deterministic_math.h"

namespace sluice::kernels {

inline constexpr int kSampleLanes = 8;
inline constexpr int kSampleChunk = 4096;  // logits; a multiple of kLogitBlock

// What DetExp takes for a weight. 1 / temperature is finite for every float > 0. No NaN even for infinities.
SLUICE_HOST_DEVICE inline double WeightExponent(float x, float max, double inverse_temperature) {
  const double exponent = Times(double(x) - double(max), inverse_temperature);
  return x == max ? 0.0 : exponent;
}

// A power of two, so large that the mass of a whole vocabulary stays below 2^62.
inline double MassScale(int64_t vocab) {
  int bits = 50;
  while (bits > 0 && (vocab >> (62 - bits)) > 0) --bits;
  return double(int64_t{1} << bits);
}

// Of a weight in [0, 1], rounded to the nearest unit. The integer is what stays in the mantissa.
SLUICE_HOST_DEVICE inline uint64_t MassOf(double weight, double mass_scale) {
  return std::bit_cast<uint64_t>(Plus(Times(weight, mass_scale), 0x1p52)) & 0x000fffffffffffffULL;
}

// The least mass of the best tokens that top-p asks for; at least 1.
SLUICE_HOST_DEVICE inline uint64_t NucleusMass(uint64_t total, float top_p) {
  const double wanted = Times(double(top_p), double(total));
  uint64_t mass = uint64_t(wanted);
  if (double(mass) < wanted || mass == 0) ++mass;
  return mass;
}

// Classes of tokens in which top-p looks for its cut: they descend with the logit, the best is in 0, and only that
// matters to the result. Four of them are a factor e in weight.
inline constexpr int kWeightClasses = 1024;
SLUICE_HOST_DEVICE inline float WeightClassScale(float temperature) {
  const float scale = 4.0f / temperature;
  return scale < std::numeric_limits<float>::max() ? scale : std::numeric_limits<float>::max();
}
SLUICE_HOST_DEVICE inline int WeightClass(float x, float max, float class_scale) {
  float c = x == max ? 0.0f : (max - x) * class_scale;
  c = c < float(kWeightClasses - 1) ? c : float(kWeightClasses - 1);
  return int(c);
}

}  // namespace sluice::kernels
