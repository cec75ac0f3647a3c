// Grouped-query attention of a block of rows over paged K and V, by key tiles.
//
// The arithmetic of one (token, head) row, part of the numerics id:
//   q' = q * scale, rounded.  Tiles of kKeyTile keys from absolute position 0, ascending. In each tile, with the keys
//   that the row may see: s_j = q' . k_j (dot product of kernel_table.h); M = max(M, s_j); if M grew: c = exp(Mold -
//   M), else c = 1; p_j = exp(s_j - M); sum = c * sum + (sixteen lanes over j, then the tree); out = c * out, then
//   fma(p_j, v_j, out) in ascending j. At the end out * (1 / sum).
// Nothing here depends on the rows beside it, on the cut into chunks, or on where blocks lie. A masked key is a score
// of -inf whose weight 0 is added to a sum and never multiplied with V, so what lies in its slot does not matter.
#pragma once

#include <cstdint>

#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/math_inl.h"
#include "kernels/cpu/matmul_inl.h"
#include "kernels/cpu/simd_macros.h"

namespace sluice::kernels::cpu {

// The rows of one item: row r is (token r / heads, head r % heads). Scores and sums live in scratch.
struct AttentionRows {
  int rows;
  int64_t dim;     // padded to 16, the pad zero
  float* q;        // [rows][dim], scaled
  float* out;      // [rows][dim]
  float* scores;   // [rows][kKeyTile]
  float* max;      // [rows]
  float* sum;      // [rows]
  float* rescale;  // [rows] of the current tile
};

// Eight consecutive keys at a time: either in place in the pool or in a padded copy.
struct KeyTile {
  const float* k[kKeyTile / 8];
  const float* v[kKeyTile / 8];
  int64_t stride;

  SLUICE_INLINE void PrefetchValues(int) const {}
  template <class S>
  SLUICE_INLINE void ScaleWeights(float*, int) const {}
  template <class S>
  SLUICE_INLINE typename S::F Value(int j, int64_t d) const {
    return S::Load(v[j / 8] + (j % 8) * stride + d);
  }
};

template <class S>
SLUICE_INLINE void CopyHead(const float* from, int64_t n, int64_t padded, float* to) {
  int64_t d = 0;
  for (; d + 16 <= n; d += 16) S::Store(to + d, S::Load(from + d));
  if (d < padded) S::Store(to + d, S::LoadPartial(from + d, int(n - d)));
}

// Keys [first, first + count) of the sequence. In place when eight keys never cross a block and no padding is needed.
template <class S>
void FindKeys(const AttentionArgs& a, int64_t first, int count, float* copy, KeyTile& tile) {
  const int64_t dim = PaddedHeadDim(a.head_dim);
  tile.stride = dim;
  if (a.block_size % 8 == 0 && dim == a.head_dim) {
    for (int j = 0; j < count; j += 8) {
      const int64_t position = first + j;
      const float* k = a.kv + a.blocks[position / a.block_size] * a.block_stride + position % a.block_size * dim;
      tile.k[j / 8] = k;
      tile.v[j / 8] = k + a.v_offset;
    }
    return;
  }
  float* copy_v = copy + kKeyTile * dim;
  for (int j = 0; j < kKeyTile; ++j) {
    const int64_t position = first + (j < count ? j : count - 1);  // a repeated key keeps the unused slots finite
    const float* k = a.kv + a.blocks[position / a.block_size] * a.block_stride + position % a.block_size * a.head_dim;
    CopyHead<S>(k, a.head_dim, dim, copy + j * dim);
    CopyHead<S>(k + a.v_offset, a.head_dim, dim, copy_v + j * dim);
  }
  for (int j = 0; j < kKeyTile / 8; ++j) {
    tile.k[j] = copy + j * 8 * dim;
    tile.v[j] = copy_v + j * 8 * dim;
  }
}

// scores[r][j] for kRows rows and keys [0, count rounded up to 8).
template <class S, int kRows>
SLUICE_INLINE void Scores(const AttentionRows& b, int r, const KeyTile& tile, int count) {
  for (int j = 0; j < count; j += 8) {
    DotTile<S, kRows>(b.q + r * b.dim, b.dim, RowTile{tile.k[j / 8], tile.stride}, b.dim / 16,
                      [&](int i, typename S::H s) SLUICE_LAMBDA { S::StoreH(b.scores + (r + i) * kKeyTile + j, s); });
  }
}

// Turns the row's `valid` scores into weights and carries maximum and sum.
template <class S>
SLUICE_INLINE void Softmax(const AttentionRows& b, int r, int valid) {
  float* s = b.scores + r * kKeyTile;
  const int padded = (valid + 15) / 16 * 16;
  for (int j = valid; j < padded; ++j) s[j] = -__builtin_inff();
  auto top = S::Load(s);
  for (int j = 16; j < padded; j += 16) top = S::Max(top, S::Load(s + j));
  const float tile_max = S::ReduceMax(top);
  b.rescale[r] = 1.0f;
  if (tile_max > b.max[r]) {
    b.rescale[r] = S::First(Exp<S>(S::Set1(b.max[r] - tile_max)));
    b.max[r] = tile_max;
  }
  const auto row_max = S::Set1(b.max[r]);
  auto sum = S::Zero();
  for (int j = 0; j < padded; j += 16) {
    const auto p = Exp<S>(S::Sub(S::Load(s + j), row_max));
    S::Store(s + j, p);
    sum = S::Add(sum, p);
  }
  b.sum[r] = __builtin_fmaf(b.sum[r], b.rescale[r], S::ReduceAdd(sum));
}

// out[r][d ...] of kRows rows and kVectors * 16 columns: rescaled if asked, then the weighted V of keys [begin, end).
template <class S, int kRows, int kVectors, class Tile>
SLUICE_INLINE void AddValues(const AttentionRows& b, int r, int64_t d, const Tile& tile, int begin, int end,
                             bool rescale) {
  using F = typename S::F;
  F acc[kRows][kVectors];
  SLUICE_UNROLL
  for (int i = 0; i < kRows; ++i) {
    const F scale = S::Set1(rescale ? b.rescale[r + i] : 1.0f);
    SLUICE_UNROLL
    for (int v = 0; v < kVectors; ++v) acc[i][v] = S::Mul(S::Load(b.out + (r + i) * b.dim + d + v * 16), scale);
  }
  for (int j = begin; j < end; ++j) {
    if (r == 0 && d == 0) tile.PrefetchValues(j);
    F vv[kVectors];
    SLUICE_UNROLL
    for (int v = 0; v < kVectors; ++v) vv[v] = S::KeepAll(tile.template Value<S>(j, d + v * 16));
    SLUICE_UNROLL
    for (int i = 0; i < kRows; ++i) {
      const F p = S::Set1(b.scores[(r + i) * kKeyTile + j]);
      SLUICE_UNROLL
      for (int v = 0; v < kVectors; ++v) acc[i][v] = S::Fma(p, vv[v], acc[i][v]);
    }
  }
  SLUICE_UNROLL
  for (int i = 0; i < kRows; ++i) {
    SLUICE_UNROLL
    for (int v = 0; v < kVectors; ++v) S::Store(b.out + (r + i) * b.dim + d + v * 16, acc[i][v]);
  }
}

template <class S, int kRows, class Tile>
SLUICE_INLINE void AddValuesAllColumns(const AttentionRows& b, int r, const Tile& tile, int begin, int end,
                                       bool rescale) {
  constexpr int kWide = S::kPvVectors;
  int64_t d = 0;
  for (; d + kWide * 16 <= b.dim; d += kWide * 16) {
    AddValues<S, kRows, kWide>(b, r, d, tile, begin, end, rescale);
  }
  for (; d < b.dim; d += 16) AddValues<S, kRows, 1>(b, r, d, tile, begin, end, rescale);
}

// Later tokens see more keys: what all kRows rows see goes together, the rest row by row.
template <class S, int kRows, class Tile>
SLUICE_INLINE void Values(const AttentionRows& b, int r, const Tile& tile, const int* valid) {
  const int common = valid[r];
  AddValuesAllColumns<S, kRows>(b, r, tile, 0, common, true);
  for (int i = 1; i < kRows; ++i) {
    if (valid[r + i] > common) AddValuesAllColumns<S, 1>(b, r + i, tile, common, valid[r + i], false);
  }
}

// Softmax of the scores and the weighted values.
template <class S, class Tile>
SLUICE_INLINE void FinishTile(const AttentionRows& b, int first_row, const Tile& tile, const int* valid) {
  constexpr int kPv = S::kPvRows;
  int r = first_row;
  for (; r < b.rows; ++r) {
    Softmax<S>(b, r, valid[r]);
    tile.template ScaleWeights<S>(b.scores + r * kKeyTile, valid[r]);
  }
  r = first_row;
  for (; r + kPv <= b.rows; r += kPv) Values<S, kPv>(b, r, tile, valid);
  if (kPv > 3 && r + 3 <= b.rows) {
    Values<S, 3>(b, r, tile, valid);
    r += 3;
  }
  for (; r < b.rows; ++r) Values<S, 1>(b, r, tile, valid);
}

template <class S>
void AttendTile(const AttentionRows& b, int first_row, const KeyTile& tile, const int* valid) {
  constexpr int kDot = S::kDotRows;
  int r = first_row;
  for (; r + kDot <= b.rows; r += kDot) Scores<S, kDot>(b, r, tile, valid[r + kDot - 1]);
  for (; r < b.rows; ++r) Scores<S, 1>(b, r, tile, valid[r]);
  FinishTile<S>(b, first_row, tile, valid);
}

template <class S, class Args>
AttentionRows StartRows(const Args& a) {
  const int64_t dim = PaddedHeadDim(a.head_dim);
  AttentionRows b;
  b.rows = a.tokens * a.heads;
  b.dim = dim;
  b.q = a.scratch;
  b.out = b.q + kAttentionRows * dim;
  b.scores = b.out + (kAttentionRows + 2 * kKeyTile) * dim;  // past the copied keys
  b.max = b.scores + kAttentionRows * kKeyTile;
  b.sum = b.max + kAttentionRows;
  b.rescale = b.sum + kAttentionRows;
  const auto scale = S::Set1(a.scale);
  for (int r = 0; r < b.rows; ++r) {
    float* q = b.q + r * dim;
    CopyHead<S>(a.q + r / a.heads * a.ldq + r % a.heads * a.head_dim, a.head_dim, dim, q);
    for (int64_t d = 0; d < dim; d += 16) {
      S::Store(q + d, S::Mul(S::Load(q + d), scale));
      S::Store(b.out + r * dim + d, S::Zero());
    }
    b.max[r] = -__builtin_inff();
    b.sum[r] = 0.0f;
  }
  return b;
}

template <class S, class Args>
void FinishRows(const Args& a, const AttentionRows& b) {
  for (int r = 0; r < b.rows; ++r) {
    const auto inverse = S::Set1(1.0f / b.sum[r]);
    const float* from = b.out + r * b.dim;
    float* to = a.out + r / a.heads * a.ldo + r % a.heads * a.head_dim;
    int64_t d = 0;
    for (; d + 16 <= a.head_dim; d += 16) S::Store(to + d, S::Mul(S::Load(from + d), inverse));
    if (d < a.head_dim) S::StorePartial(to + d, S::Mul(S::Load(from + d), inverse), int(a.head_dim - d));
  }
}

// How many keys of the tile at `first` each row may see. Returns the first row that sees any.
template <class Args>
SLUICE_INLINE int VisibleKeys(const Args& a, int rows, int64_t first, int* valid) {
  int first_row = 0;
  for (int r = 0; r < rows; ++r) {
    const int64_t seen = a.first_position + r / a.heads + 1 - first;
    valid[r] = seen > kKeyTile ? kKeyTile : int(seen);
    if (seen <= 0) first_row = r + 1;
  }
  return first_row;
}

template <class S>
void Attention(const AttentionArgs& a) {
  const AttentionRows b = StartRows<S>(a);
  float* copied_keys = b.out + kAttentionRows * b.dim;
  const int64_t end = a.first_position + a.tokens;
  for (int64_t first = 0; first < end; first += kKeyTile) {
    int valid[kAttentionRows];
    const int first_row = VisibleKeys(a, b.rows, first, valid);
    KeyTile tile;
    FindKeys<S>(a, first, valid[b.rows - 1], copied_keys, tile);
    AttendTile<S>(b, first_row, tile, valid);
  }
  FinishRows<S>(a, b);
}

}  // namespace sluice::kernels::cpu
