// Rotary position embedding of the heads of one row: (a, b) -> (a cos - b sin, a sin + b cos), each with one product
// rounded and one fused. Elementwise, so the compiler may vectorise it without changing a bit.
#pragma once

#include "kernels/cpu/simd_macros.h"

namespace sluice::kernels::cpu {

template <class S>
void Rope(float* heads, int num_heads, int head_dim, int rotary_dim, bool half_split, const float* cos_sin) {
  const int pairs = rotary_dim / 2;
  const float* cosines = cos_sin;
  const float* sines = cos_sin + pairs;
  for (int h = 0; h < num_heads; ++h) {
    float* v = heads + int64_t(h) * head_dim;
    if (half_split) {
      for (int i = 0; i < pairs; ++i) {
        const float a = v[i], b = v[pairs + i];
        v[i] = __builtin_fmaf(a, cosines[i], -(b * sines[i]));
        v[pairs + i] = __builtin_fmaf(a, sines[i], b * cosines[i]);
      }
    } else {
      for (int i = 0; i < pairs; ++i) {
        const float a = v[2 * i], b = v[2 * i + 1];
        v[2 * i] = __builtin_fmaf(a, cosines[i], -(b * sines[i]));
        v[2 * i + 1] = __builtin_fmaf(a, sines[i], b * cosines[i]);
      }
    }
  }
}

}  // namespace sluice::kernels::cpu
