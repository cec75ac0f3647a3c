// KernelTable::block_maxima.
#pragma once

#include <cstdint>

#include "kernels/cpu/simd_macros.h"

namespace sluice::kernels::cpu {

template <class S>
void BlockMaxima(const float* x, int64_t n, float* maxima) {
  constexpr int64_t kBlock = 64;
  const float lowest = -__builtin_inff();
  int64_t i = 0;
  for (; i + kBlock <= n; i += kBlock) {
    auto top = S::Set1(lowest);
    SLUICE_UNROLL
    for (int v = 0; v < kBlock; v += 16) top = S::Max(S::Load(x + i + v), top);  // the second where one is NaN
    maxima[i / kBlock] = S::ReduceMax(top);
  }
  if (i == n) return;
  float top = lowest;
  for (int64_t j = i; j < n; ++j) top = x[j] > top ? x[j] : top;
  maxima[i / kBlock] = top;
}

}  // namespace sluice::kernels::cpu
