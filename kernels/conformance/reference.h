// The oracle: a decoder as plain loops in double precision over dequantised weights. No tiles, no cache, no order to
// speak of; slow and obviously right.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/conformance/tiny_model.h"

namespace sluice::kernels::conformance {

// [position][vocab]
std::vector<std::vector<double>> ReferenceLogits(const TinyWeights& weights, const std::vector<int32_t>& tokens);

// One row of one head: softmax(scale * q Kᵀ) V with keys[j] and values[j] of q.size() elements.
std::vector<double> ReferenceAttention(const std::vector<double>& q, const std::vector<std::vector<double>>& keys,
                                       const std::vector<std::vector<double>>& values, double scale);

}  // namespace sluice::kernels::conformance
