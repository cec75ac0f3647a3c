// Epilogues of products with panels.
#pragma once

#include <cstdint>

#include "kernels/cpu/panels.h"
#include "kernels/cpu/simd_macros.h"

namespace sluice::kernels::cpu {

// The results of activation row m and sixteen rows of the matrix from n on, of `rows` in all.
template <class S>
SLUICE_INLINE void Put(const ProductOutput& out, int64_t m, int64_t n, int64_t rows, typename S::F value) {
  float* to = out.y + m * out.ld + n;
  if (n + kPanelRows <= rows) {
    if (out.bias != nullptr) value = S::Add(value, S::Load(out.bias + n));
    S::Store(to, out.accumulate ? S::Add(S::Load(to), value) : value);
    return;
  }
  const int rest = int(rows - n);
  if (out.bias != nullptr) value = S::Add(value, S::LoadPartial(out.bias + n, rest));
  S::StorePartial(to, out.accumulate ? S::Add(S::LoadPartial(to, rest), value) : value, rest);
}

// Likewise h = f(g) * u.
template <class S, class Gate>
SLUICE_INLINE void PutGated(float* h, int64_t ld, int64_t m, int64_t n, int64_t rows, typename S::F g,
                            typename S::F u) {
  const auto value = S::Mul(Gate::Of(g), u);
  float* to = h + m * ld + n;
  if (n + kPanelRows <= rows) {
    S::Store(to, value);
  } else {
    S::StorePartial(to, value, int(rows - n));
  }
}

}  // namespace sluice::kernels::cpu
