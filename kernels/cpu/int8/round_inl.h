// A row of floats as bytes and a scale.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/cpu/simd_macros.h"

namespace sluice::kernels::cpu {

// bytes[i] = 128 + round(x[i] * 127 / max|x|), and 128 in the padding; returns max|x| / 127. A row of zeros gives
// zeros. What is not a number becomes -127, and a row with an infinity zeros and -127: garbage stays in its own row.
template <class S>
float RoundRow(const float* x, int64_t vectors, uint8_t* bytes, int64_t padded_k) {
  auto top = S::Zero();
  for (int64_t v = 0; v < vectors; ++v) top = S::Max(top, S::Abs(S::Load(x + v * 16)));
  const float largest = S::ReduceMax(top);
  const auto inverse = S::Set1(largest > 0.0f ? 127.0f / largest : 0.0f);
  const auto low = S::Set1(-127.0f), high = S::Set1(127.0f);
  for (int64_t v = 0; v < vectors; ++v) {
    S::StoreU8(bytes + v * 16, S::Min(S::Max(S::Mul(S::Load(x + v * 16), inverse), low), high));
  }
  std::memset(bytes + vectors * 16, 128, uint64_t(padded_k - vectors * 16));
  return largest / 127.0f;
}

}  // namespace sluice::kernels::cpu
