// The kernels of bf16_table.h. S gives the shape of a register tile: kBf16Rows rows of activations, kBf16Panels panels.
#pragma once

#include <cstdint>
#include <utility>

#include "kernels/cpu/bf16/bf16_table.h"
#include "kernels/cpu/panels_inl.h"
#include "kernels/cpu/simd_macros.h"

namespace sluice::kernels::cpu {

template <class S, int kM, int kN>
SLUICE_INLINE void Bf16Step(const float* x, int64_t k, const typename S::F (&w)[kN], typename S::F (&acc)[kM][kN]) {
  SLUICE_UNROLL
  for (int i = 0; i < kM; ++i) {
    const auto xv = S::Set1(x[i * k]);
    SLUICE_UNROLL
    for (int j = 0; j < kN; ++j) acc[i][j] = S::Fma(xv, w[j], acc[i][j]);
  }
}

template <class S, int kM, int kN>
void Bf16Tile(const FloatRows& x, const Bf16Panels& w, int64_t m, int64_t p, float* y) {
  using F = typename S::F;
  F acc[kM][kN];
  SLUICE_UNROLL
  for (int i = 0; i < kM; ++i) {
    SLUICE_UNROLL
    for (int j = 0; j < kN; ++j) acc[i][j] = S::Zero();
  }
  const uint16_t* panel[kN];
  SLUICE_UNROLL
  for (int j = 0; j < kN; ++j) panel[j] = w.data + (p + j) * w.k * kPanelRows;
  const float* rows = x.data + m * x.k;
  for (int64_t k = 0; k < w.k; k += 2) {
    F even[kN], odd[kN];
    SLUICE_UNROLL
    for (int j = 0; j < kN; ++j) {
      S::LoadBf16Pairs(panel[j] + k * kPanelRows, even[j], odd[j]);
      even[j] = S::KeepAll(even[j]);
      odd[j] = S::KeepAll(odd[j]);
    }
    Bf16Step<S, kM, kN>(rows + k, x.k, even, acc);
    Bf16Step<S, kM, kN>(rows + k + 1, x.k, odd, acc);
  }
  SLUICE_UNROLL
  for (int i = 0; i < kM; ++i) {
    SLUICE_UNROLL
    for (int j = 0; j < kN; ++j) S::Store(y + (i * S::kBf16Panels + j) * kPanelRows, acc[i][j]);
  }
}

template <class S>
struct Bf16Tiles {
  static constexpr int kRows = S::kBf16Rows;
  static constexpr int kPanels = S::kBf16Panels;
  using Fn = void (*)(const FloatRows& x, const Bf16Panels& w, int64_t m, int64_t p, float* y);

  static SLUICE_INLINE void Tile(const FloatRows& x, const Bf16Panels& w, int64_t m, int rows, int64_t p, int panels,
                                 float* y) {
    using Rows = std::make_integer_sequence<int, kRows>;
    if (panels == kPanels) return Pick<kPanels>(rows, Rows{})(x, w, m, p, y);
    for (int j = 0; j < panels; ++j) Pick<1>(rows, Rows{})(x, w, m, p + j, y + j * kPanelRows);
  }

 private:
  template <int kN, int... kRowsLess1>
  static SLUICE_INLINE Fn Pick(int rows, std::integer_sequence<int, kRowsLess1...>) {
    static constexpr Fn kFns[] = {&Bf16Tile<S, kRowsLess1 + 1, kN>...};
    return kFns[rows - 1];
  }
};

}  // namespace sluice::kernels::cpu
