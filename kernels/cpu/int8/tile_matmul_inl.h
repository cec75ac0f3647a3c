// The int8 products on tile registers (AMX), over the tiles T of one implementation:
//   T::Configure(a0, a1)   tiles 4 and 5 get so many rows of 64 bytes, tiles 0 to 3 the same rows of sixteen int32 (0
//   and
//                          1 as 4; 2 and 3 as 5), tiles 6 and 7 sixteen rows of 64 bytes
//   T::Zero<t>(), T::Load<t>(p, stride), T::Dot<c, a, b>() (c += unsigned a times signed b), T::Store<t>(p, stride)
//   T::Release()
// Two panels and up to 32 activation rows at a time: 4 sums, 2 rows of tiles of activations, 2 of weights. A packed
// panel is a column of weight tiles as it lies. One row alone does better without tiles (D, see matmul_inl.h).
#pragma once

#include <cstdint>

#include "kernels/cpu/int8/int8_table.h"
#include "kernels/cpu/int8/matmul_inl.h"
#include "kernels/cpu/simd_macros.h"

namespace sluice::kernels::cpu {

// Tiles configured for a number of rows; configuring is dear, so only when it changes.
template <class T>
class TileRows {
 public:
  ~TileRows() {
    if (rows_ > 0) T::Release();
  }
  SLUICE_INLINE void Need(int64_t rows) {  // 1 to 32
    if (rows == rows_) return;
    rows_ = rows;
    T::Configure(int(rows < 16 ? rows : 16), int(rows > 16 ? rows - 16 : 1));
  }

 private:
  int64_t rows_ = 0;
};

// sums[r][n] of `rows` rows from m on and the panels p and, if kTwo, p + 1.
template <class S, class T, bool kTwo, class R>
SLUICE_INLINE void TileBlock(const R& results, const Int8Rows& x, int64_t k, int64_t m, int64_t rows, int64_t p,
                             int32_t* sums) {
  const bool low = rows > 16;  // a second row of tiles
  const int8_t *w0 = results.panel(p), *w1 = kTwo ? results.panel(p + 1) : nullptr;
  const uint8_t* x0 = x.data + m * k;
  T::template Zero<0>();
  if (kTwo) T::template Zero<1>();
  if (low) {
    T::template Zero<2>();
    if (kTwo) T::template Zero<3>();
  }
  for (int64_t q = 0; q < k; q += kInt8Pad) {
    T::template Load<4>(x0 + q, k);
    T::template Load<6>(w0 + q * kPanelRows, 64);
    T::template Dot<0, 4, 6>();
    if (kTwo) {
      T::template Load<7>(w1 + q * kPanelRows, 64);
      T::template Dot<1, 4, 7>();
    }
    if (low) {
      T::template Load<5>(x0 + 16 * k + q, k);
      T::template Dot<2, 5, 6>();
      if (kTwo) T::template Dot<3, 5, 7>();
    }
  }
  constexpr int64_t kRowBytes = 32 * sizeof(int32_t);
  T::template Store<0>(sums, kRowBytes);
  if (kTwo) T::template Store<1>(sums + 16, kRowBytes);
  if (low) {
    T::template Store<2>(sums + 16 * 32, kRowBytes);
    if (kTwo) T::template Store<3>(sums + 16 * 32 + 16, kRowBytes);
  }
  for (int64_t r = 0; r < rows; ++r) {
    typename S::I row[1][kTwo ? 2 : 1];
    row[0][0] = S::LoadI(sums + r * 32);
    if constexpr (kTwo) row[0][1] = S::LoadI(sums + r * 32 + 16);
    results.template Take<1, kTwo ? 2 : 1>(m + r, p, row);
  }
}

template <class S, class D, class T, class R>
SLUICE_INLINE void AllPanelsByTiles(const R& results, const Int8Rows& x, int64_t k, int64_t begin, int64_t end) {
  if (x.rows == 1) return AllPanels<S, D>(results, x, k, begin, end);
  alignas(64) int32_t sums[32 * 32];
  TileRows<T> tiles;
  for (int64_t p = begin; p < end; p += 2) {
    for (int64_t m = 0; m < x.rows; m += 32) {
      const int64_t rows = x.rows - m < 32 ? x.rows - m : 32;
      tiles.Need(rows);
      if (p + 1 < end) {
        TileBlock<S, T, true>(results, x, k, m, rows, p, sums);
      } else if constexpr (R::kPanels == 1) {
        TileBlock<S, T, false>(results, x, k, m, rows, p, sums);
      }
    }
  }
}

template <class S, class D, class T>
void TileMatmul(const Int8Rows& x, const Int8Panels& w, const ProductOutput& out, int64_t begin, int64_t end) {
  AllPanelsByTiles<S, D, T>(PlainResults<S>{x, w, out}, x, w.k, begin, end);
}

template <class S, class D, class T>
void TileGateUp(const Int8Rows& x, const Int8Panels& gate, const Int8Panels& up, GateFunction f, float* h, int64_t ld,
                int64_t begin, int64_t end) {
  if (f == GateFunction::kSilu) {
    AllPanelsByTiles<S, D, T>(GatedResults<S, Silu<S>>{x, gate, up, h, ld}, x, gate.k, 2 * begin, 2 * end);
  } else {
    AllPanelsByTiles<S, D, T>(GatedResults<S, GeluTanh<S>>{x, gate, up, h, ld}, x, gate.k, 2 * begin, 2 * end);
  }
}

}  // namespace sluice::kernels::cpu
