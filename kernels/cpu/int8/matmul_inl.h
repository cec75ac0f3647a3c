// Loops and epilogues of the int8 products, over the dot products D of one instruction set:
//   D::kRows                 most activation rows of a register tile
//   D::Dot<M, N>(w, x, k, sums)  sums[m][n] = rows m of x times panel n, sixteen int32 each
//   D::Dot1(w, x, k)         one row times one panel, read straight through: bound by memory
// Panels stay in the caches while all rows of x pass over them.
#pragma once

#include <cstdint>

#include "kernels/cpu/int8/int8_table.h"
#include "kernels/cpu/math_inl.h"
#include "kernels/cpu/panels_inl.h"
#include "kernels/cpu/simd_macros.h"

namespace sluice::kernels::cpu {

// Sixteen results of one activation row and one panel.
template <class S>
SLUICE_INLINE typename S::F Dequantised(typename S::I sum, const Int8Panels& w, int64_t n, float x_scale) {
  const auto exact = S::ToF(S::SubI(sum, S::LoadI(w.offsets + n)));
  return S::Mul(exact, S::Mul(S::Set1(x_scale), S::Load(w.scales + n)));
}

// What is done with the sums of kM rows and kN panels: plain results,
template <class S>
struct PlainResults {
  static constexpr int kPanels = 1;  // that belong together
  const Int8Rows& x;
  const Int8Panels& w;
  const ProductOutput& out;

  SLUICE_INLINE const int8_t* panel(int64_t p) const { return w.data + p * w.k * kPanelRows; }
  template <int kM, int kN>
  SLUICE_INLINE void Take(int64_t m, int64_t p, const typename S::I (&sums)[kM][kN]) const {
    SLUICE_UNROLL
    for (int i = 0; i < kM; ++i) {
      const float scale = x.scales[m + i];
      SLUICE_UNROLL
      for (int j = 0; j < kN; ++j) {
        const int64_t n = (p + j) * kPanelRows;
        Put<S>(out, m + i, n, w.rows, Dequantised<S>(sums[i][j], w, n, scale));
      }
    }
  }
};

// or gates: panel 2p is of the gate, 2p + 1 the same of up.
template <class S, class Gate>
struct GatedResults {
  static constexpr int kPanels = 2;
  const Int8Rows& x;
  const Int8Panels& gate;
  const Int8Panels& up;
  float* h;
  int64_t ld;

  SLUICE_INLINE const int8_t* panel(int64_t p) const {
    return (p % 2 == 0 ? gate.data : up.data) + p / 2 * gate.k * kPanelRows;
  }
  template <int kM, int kN>
  SLUICE_INLINE void Take(int64_t m, int64_t p, const typename S::I (&sums)[kM][kN]) const {
    static_assert(kN % 2 == 0);
    SLUICE_UNROLL
    for (int i = 0; i < kM; ++i) {
      const float scale = x.scales[m + i];
      SLUICE_UNROLL
      for (int j = 0; j < kN; j += 2) {
        const int64_t n = (p + j) / 2 * kPanelRows;
        const auto g = Dequantised<S>(sums[i][j], gate, n, scale);
        const auto u = Dequantised<S>(sums[i][j + 1], up, n, scale);
        PutGated<S, Gate>(h, ld, m + i, n, gate.rows, g, u);
      }
    }
  }
};

template <class S, class D, int kM, int kN, class R>
SLUICE_INLINE void OneTile(const R& results, const Int8Rows& x, int64_t k, int64_t m, int64_t p) {
  const int8_t* w[kN];
  SLUICE_UNROLL
  for (int j = 0; j < kN; ++j) w[j] = results.panel(p + j);
  typename S::I sums[kM][kN];
  D::template Dot<kM, kN>(w, x.data + m * k, k, sums);
  results.template Take<kM, kN>(m, p, sums);
}

// Rows in tiles of nearly equal height: a tile of one row would leave the multipliers idle.
template <class S, class D, int kN, class R>
SLUICE_INLINE void AllRows(const R& results, const Int8Rows& x, int64_t k, int64_t p) {
  const int64_t tiles = (x.rows + D::kRows - 1) / D::kRows;
  for (int64_t t = 0; t < tiles; ++t) {
    const int64_t m = x.rows * t / tiles, count = x.rows * (t + 1) / tiles - m;
    switch (count) {
      case 1:
        OneTile<S, D, 1, kN>(results, x, k, m, p);
        break;
      case 2:
        if constexpr (D::kRows >= 2) OneTile<S, D, 2, kN>(results, x, k, m, p);
        break;
      case 3:
        if constexpr (D::kRows >= 3) OneTile<S, D, 3, kN>(results, x, k, m, p);
        break;
      case 4:
        if constexpr (D::kRows >= 4) OneTile<S, D, 4, kN>(results, x, k, m, p);
        break;
      case 5:
        if constexpr (D::kRows >= 5) OneTile<S, D, 5, kN>(results, x, k, m, p);
        break;
      default:
        if constexpr (D::kRows >= 6) OneTile<S, D, 6, kN>(results, x, k, m, p);
        break;
    }
  }
}

// Panels [begin, end), where kPanels of them belong together.
template <class S, class D, class R>
SLUICE_INLINE void AllPanels(const R& results, const Int8Rows& x, int64_t k, int64_t begin, int64_t end) {
  int64_t p = begin;
  if (x.rows == 1) {
    for (; p < end; p += R::kPanels) {
      typename S::I sums[1][R::kPanels];
      SLUICE_UNROLL
      for (int j = 0; j < R::kPanels; ++j) sums[0][j] = D::Dot1(results.panel(p + j), x.data, k);
      results.template Take<1, R::kPanels>(0, p, sums);
    }
    return;
  }
  for (; p + 4 <= end; p += 4) AllRows<S, D, 4>(results, x, k, p);
  for (; p < end; p += R::kPanels) AllRows<S, D, R::kPanels>(results, x, k, p);
}

template <class S, class D>
void Int8Matmul(const Int8Rows& x, const Int8Panels& w, const ProductOutput& out, int64_t begin, int64_t end) {
  AllPanels<S, D>(PlainResults<S>{x, w, out}, x, w.k, begin, end);
}

template <class S, class D>
void Int8GateUp(const Int8Rows& x, const Int8Panels& gate, const Int8Panels& up, GateFunction f, float* h, int64_t ld,
                int64_t begin, int64_t end) {
  if (f == GateFunction::kSilu) {
    AllPanels<S, D>(GatedResults<S, Silu<S>>{x, gate, up, h, ld}, x, gate.k, 2 * begin, 2 * end);
  } else {
    AllPanels<S, D>(GatedResults<S, GeluTanh<S>>{x, gate, up, h, ld}, x, gate.k, 2 * begin, 2 * end);
  }
}

}  // namespace sluice::kernels::cpu
