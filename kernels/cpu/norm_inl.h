// RMS norm of one row: the sum of squares is a dot product in the order of kernel_table.h; square root and division
// are the IEEE operations.
#pragma once

#include "kernels/cpu/simd_macros.h"

namespace sluice::kernels::cpu {

template <class S>
void RmsNorm(const float* x, const float* weight, float eps, int64_t n, float* out) {
  auto sum = S::Zero();
  for (int64_t i = 0; i < n; i += 16) {  // x is zero-padded
    const auto v = S::Load(x + i);
    sum = S::Fma(v, v, sum);
  }
  const float mean = S::ReduceAdd(sum) / float(n);
  const auto scale = S::Set1(1.0f / __builtin_sqrtf(mean + eps));
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    S::Store(out + i, S::Mul(S::Mul(S::Load(x + i), scale), S::Load(weight + i)));
  }
  if (i < n) {
    const int rest = int(n - i);
    S::StorePartial(out + i, S::Mul(S::Mul(S::Load(x + i), scale), S::LoadPartial(weight + i, rest)), rest);
  }
}

}  // namespace sluice::kernels::cpu
