// y = x Wᵀ. One row of x: weights become floats in registers and are used once. More rows: eight weight rows become a
// tile of floats in L1 that all rows of x pass over. Both keep, for every output, sixteen lanes in ascending k and the
// same tree, so an output never depends on the number of rows.
#pragma once

#include <cstdint>

#include "kernels/cpu/dequant_inl.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/simd_macros.h"

namespace sluice::kernels::cpu {

// Where a tile of eight weight rows lies: packed as [k / 16][8][16], so that it is read straight through ...
struct PackedTile {
  const float* base;
  SLUICE_INLINE const float* at(int64_t chunk, int n) const { return base + chunk * (16 * kTileColumns) + n * 16; }
};

// ... or as rows (the keys of a KV block).
struct RowTile {
  const float* base;
  int64_t stride;
  SLUICE_INLINE const float* at(int64_t chunk, int n) const { return base + n * stride + chunk * 16; }
};

// Eight dot products for each of kRows rows of x: out(m, the eight results).
template <class S, int kRows, class Tile, class Out>
SLUICE_INLINE void DotTile(const float* x, int64_t ldx, Tile tile, int64_t chunks, Out out) {
  using P = typename S::P;
  constexpr int kCols = S::kPartColumns;
  typename S::F sums[kRows][kTileColumns];
  SLUICE_UNROLL
  for (int n0 = 0; n0 < kTileColumns; n0 += kCols) {
    SLUICE_UNROLL
    for (int part = 0; part < S::kParts; ++part) {
      P acc[kRows][kCols];
      SLUICE_UNROLL
      for (int m = 0; m < kRows; ++m) {
        SLUICE_UNROLL
        for (int n = 0; n < kCols; ++n) acc[m][n] = S::ZeroP();
      }
      for (int64_t c = 0; c < chunks; ++c) {
        P xv[kRows];
        SLUICE_UNROLL
        for (int m = 0; m < kRows; ++m) xv[m] = S::Keep(S::LoadP(x + m * ldx + c * 16, part));
        SLUICE_UNROLL
        for (int n = 0; n < kCols; ++n) {
          const P wv = S::Keep(S::LoadP(tile.at(c, n0 + n), part));
          SLUICE_UNROLL
          for (int m = 0; m < kRows; ++m) acc[m][n] = S::FmaP(xv[m], wv, acc[m][n]);
        }
      }
      SLUICE_UNROLL
      for (int m = 0; m < kRows; ++m) {
        SLUICE_UNROLL
        for (int n = 0; n < kCols; ++n) S::SetPart(sums[m][n0 + n], part, acc[m][n]);
      }
    }
  }
  SLUICE_UNROLL
  for (int m = 0; m < kRows; ++m) out(m, S::Reduce8(sums[m]));
}

// What happens to eight results of row m at column n.
template <class S>
struct Epilogue {
  float* y;
  int64_t ldy;
  const float* bias;
  bool accumulate;

  SLUICE_INLINE void Put(int64_t m, int64_t n, int count, typename S::H value) const {
    float* to = y + m * ldy + n;
    if (count == kTileColumns) {
      if (bias) value = S::AddH(value, S::LoadH(bias + n));
      if (accumulate) value = S::AddH(S::LoadH(to), value);
      S::StoreH(to, value);
      return;
    }
    float v[kTileColumns];
    S::StoreH(v, value);
    for (int i = 0; i < count; ++i) {
      if (bias) v[i] = v[i] + bias[n + i];
      to[i] = accumulate ? to[i] + v[i] : v[i];
    }
  }
};

// One row of x against up to eight weight rows, from registers.
template <class S, DType kType>
SLUICE_INLINE void Gemv8(const MatmulArgs& a, const uint8_t* const* rows, typename S::F* sums) {
  using F = typename S::F;
  const int64_t blocks = (a.cols + 31) / 32;
  SLUICE_UNROLL
  for (int n0 = 0; n0 < kTileColumns; n0 += S::kGemvRows) {
    F acc[S::kGemvRows];
    SLUICE_UNROLL
    for (int n = 0; n < S::kGemvRows; ++n) acc[n] = S::Zero();
    for (int64_t b = 0; b < blocks; ++b) {
      const F x0 = S::Load(a.x + b * 32), x1 = S::Load(a.x + b * 32 + 16);
      SLUICE_UNROLL
      for (int n = 0; n < S::kGemvRows; ++n) {
        F lo, hi;
        Reader<S, kType>::Load32(rows[n0 + n], b, a.cols, lo, hi);
        // Eight short streams are more than the hardware follows: fetch what the next eight rows will want.
        __builtin_prefetch(rows[n0 + n] + a.row_bytes * kTileColumns + b * Reader<S, kType>::kStep);
        acc[n] = S::Fma(x0, lo, acc[n]);
        acc[n] = S::Fma(x1, hi, acc[n]);
      }
    }
    SLUICE_UNROLL
    for (int n = 0; n < S::kGemvRows; ++n) sums[n0 + n] = acc[n];
  }
}

template <class S, DType kType>
void FillTile(const MatmulArgs& a, const uint8_t* const* rows) {
  const int64_t blocks = (a.cols + 31) / 32;
  for (int n = 0; n < kTileColumns; ++n) {
    float* to = a.tile + n * 16;
    for (int64_t b = 0; b < blocks; ++b) {
      typename S::F lo, hi;
      Reader<S, kType>::Load32(rows[n], b, a.cols, lo, hi);
      S::Store(to, lo);
      S::Store(to + 16 * kTileColumns, hi);
      to += 32 * kTileColumns;
    }
  }
}

template <class S, int kRows>
SLUICE_INLINE void TileRows(const MatmulArgs& a, const Epilogue<S>& put, int64_t m, int64_t n, int count) {
  const int64_t chunks = (a.cols + 31) / 32 * 2;
  DotTile<S, kRows>(a.x + m * a.ldx, a.ldx, PackedTile{a.tile}, chunks,
                    [&](int i, typename S::H v) SLUICE_LAMBDA { put.Put(m + i, n, count, v); });
}

// All rows of x against the tile. Not inlined: one copy for all weight types.
template <class S>
__attribute__((noinline)) void TileAllRows(const MatmulArgs& a, const Epilogue<S>& put, int64_t n, int count) {
  int64_t m = 0;
  for (; m + S::kDotRows <= a.rows; m += S::kDotRows) TileRows<S, S::kDotRows>(a, put, m, n, count);
  if (S::kDotRows > 2 && m + 2 <= a.rows) {
    TileRows<S, 2>(a, put, m, n, count);
    m += 2;
  }
  for (; m < a.rows; ++m) TileRows<S, 1>(a, put, m, n, count);
}

template <class S, DType kType>
void MatmulTyped(const MatmulArgs& a, int64_t n_begin, int64_t n_end) {
  const Epilogue<S> put{a.y, a.ldy, a.bias, a.accumulate};
  for (int64_t n = n_begin; n < n_end; n += kTileColumns) {
    const int count = n_end - n < kTileColumns ? int(n_end - n) : kTileColumns;
    const uint8_t* rows[kTileColumns];  // the last row stands in for those past the end
    for (int i = 0; i < kTileColumns; ++i) rows[i] = a.w + (n + (i < count ? i : count - 1)) * a.row_bytes;
    if (a.rows == 1) {
      typename S::F sums[kTileColumns];
      Gemv8<S, kType>(a, rows, sums);
      put.Put(0, n, count, S::Reduce8(sums));
    } else {
      FillTile<S, kType>(a, rows);
      TileAllRows<S>(a, put, n, count);
    }
  }
}

template <class S>
void Matmul(const MatmulArgs& a, int64_t n_begin, int64_t n_end) {
  DispatchType(a.type, [&]<DType kType>() { MatmulTyped<S, kType>(a, n_begin, n_end); });
}

}  // namespace sluice::kernels::cpu
