// The kernels of bf16_kv.h.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/cpu/attention_inl.h"
#include "kernels/cpu/bf16_kv.h"
#include "kernels/cpu/simd_macros.h"

namespace sluice::kernels::cpu {

// Round to nearest even. A number that is not one stays so.
SLUICE_INLINE uint16_t RoundToBf16(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  return uint16_t((bits & 0x7fffffffu) > 0x7f800000u ? (bits >> 16) | 0x40u : rounded);
}

template <class S>
void WriteBf16(const float* k, const float* v, int head_dim, int slot, int block_size, int64_t v_offset, uint16_t* kv) {
  uint16_t* to_v = kv + v_offset + int64_t(slot) * head_dim;
  for (int d = 0; d < head_dim; ++d) to_v[d] = RoundToBf16(v[d]);
  if (block_size % 16 == 0) {
    uint16_t* to_k = kv + int64_t(slot / 16) * 16 * head_dim + slot % 16;
    for (int d = 0; d < head_dim; ++d) to_k[d * 16] = RoundToBf16(k[d]);
  } else {
    uint16_t* to_k = kv + int64_t(slot) * head_dim;
    for (int d = 0; d < head_dim; ++d) to_k[d] = RoundToBf16(k[d]);
  }
}

// kKeyTile keys of a sequence, sixteen at a time.
struct Bf16Tile {
  const uint16_t* k[kKeyTile / 16];  // [head_dim][16]
  const uint16_t* v[kKeyTile / 16];  // [16][head_dim]
  int64_t head_dim;

  // What the next tile will read is asked for while this one is computed: K beside the scores, V beside the values.
  const uint16_t* next_k[kKeyTile / 16];
  const uint16_t* next_v[kKeyTile / 16];

  SLUICE_INLINE void PrefetchKeys(int64_t d) const {
    if (d % 2 != 0) return;  // two rows of sixteen keys are a line
    SLUICE_UNROLL
    for (int i = 0; i < kKeyTile / 16; ++i) __builtin_prefetch(next_k[i] + d * 16, 0, 2);
  }
  SLUICE_INLINE void PrefetchValues(int j) const {
    const uint16_t* row = next_v[j / 16] + (j % 16) * head_dim;
    for (int64_t d = 0; d < head_dim; d += 32) __builtin_prefetch(row + d, 0, 2);
  }

  template <class S>
  SLUICE_INLINE typename S::F Value(int j, int64_t d) const {
    return S::LoadBf16(reinterpret_cast<const uint8_t*>(v[j / 16] + (j % 16) * head_dim + d));
  }
};

// Keys past the end are the last ones again: read, never used.
SLUICE_INLINE const uint16_t* FindKey(const Bf16AttentionArgs& a, const Bf16NextItem& item, int64_t position) {
  position = position < item.end_key ? position : (item.end_key - 1) / 16 * 16;
  return item.kv + item.blocks[position / a.block_size] * a.block_stride + position % a.block_size * a.head_dim;
}

SLUICE_INLINE void FindBf16Keys(const Bf16AttentionArgs& a, int64_t first, Bf16Tile& tile) {
  tile.head_dim = a.head_dim;
  const Bf16NextItem here{a.kv, a.blocks, a.first_key, a.end_key};
  Bf16NextItem next = here;
  int64_t next_first = first + kKeyTile;
  if (next_first >= a.end_key && a.next.kv != nullptr) {
    next = a.next;
    next_first = a.next.first_key;
  }
  for (int i = 0; i < kKeyTile / 16; ++i) {
    tile.k[i] = FindKey(a, here, first + i * 16);
    tile.v[i] = tile.k[i] + a.v_offset;
    tile.next_k[i] = FindKey(a, next, next_first + i * 16);
    tile.next_v[i] = tile.next_k[i] + a.v_offset;
  }
}

// scores[r][j] of kRows rows and kVectors * 16 keys: lanes are keys.
template <class S, int kRows, int kVectors>
SLUICE_INLINE void KeyScores(const AttentionRows& b, int r, const Bf16Tile& tile, int first_vector) {
  using F = typename S::F;
  F acc[kRows][kVectors];
  SLUICE_UNROLL
  for (int i = 0; i < kRows; ++i) {
    SLUICE_UNROLL
    for (int v = 0; v < kVectors; ++v) acc[i][v] = S::Zero();
  }
  const float* q = b.q + r * b.dim;
  for (int64_t d = 0; d < tile.head_dim; ++d) {
    if (r == 0) tile.PrefetchKeys(d);
    F key[kVectors];
    SLUICE_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      key[v] = S::KeepAll(S::LoadBf16(reinterpret_cast<const uint8_t*>(tile.k[first_vector + v] + d * 16)));
    }
    SLUICE_UNROLL
    for (int i = 0; i < kRows; ++i) {
      const F x = S::Set1(q[i * b.dim + d]);
      SLUICE_UNROLL
      for (int v = 0; v < kVectors; ++v) acc[i][v] = S::Fma(x, key[v], acc[i][v]);
    }
  }
  SLUICE_UNROLL
  for (int i = 0; i < kRows; ++i) {
    SLUICE_UNROLL
    for (int v = 0; v < kVectors; ++v) S::Store(b.scores + (r + i) * kKeyTile + (first_vector + v) * 16, acc[i][v]);
  }
}

template <class S, int kRows>
SLUICE_INLINE void TileScores(const AttentionRows& b, int r, const Bf16Tile& tile, int count) {
  constexpr int kWide = S::kScoreVectors;
  int v = 0;
  for (; v < (count + 15) / 16; v += kWide) KeyScores<S, kRows, kWide>(b, r, tile, v);
}

template <class S>
void AttendBf16Tile(const AttentionRows& b, int first_row, const Bf16Tile& tile, const int* valid) {
  constexpr int kMost = S::kScoreRows;
  int r = first_row;
  for (; r + kMost <= b.rows; r += kMost) TileScores<S, kMost>(b, r, tile, valid[r + kMost - 1]);
  if (kMost > 3 && r + 3 <= b.rows) {
    TileScores<S, 3>(b, r, tile, valid[r + 2]);
    r += 3;
  }
  for (; r < b.rows; ++r) TileScores<S, 1>(b, r, tile, valid[r]);
  FinishTile<S>(b, first_row, tile, valid);
  for (int j = valid[0] > 0 ? valid[0] : 0; j < kKeyTile; ++j) tile.PrefetchValues(j);  // what the values left out
}

// The same for blocks that are no whole vectors: copies of K turned to [head_dim][16], and of V.
SLUICE_INLINE void CopyBf16Keys(const Bf16AttentionArgs& a, int64_t first, uint16_t* copy, Bf16Tile& tile) {
  const int64_t dim = a.head_dim, plane = kKeyTile * dim;
  tile.head_dim = dim;
  for (int j = 0; j < kKeyTile; ++j) {
    const int64_t position = first + j < a.end_key ? first + j : a.end_key - 1;
    const uint16_t* k = a.kv + a.blocks[position / a.block_size] * a.block_stride + position % a.block_size * dim;
    uint16_t* to = copy + j / 16 * 16 * dim + j % 16;
    for (int64_t d = 0; d < dim; ++d) to[d * 16] = k[d];
    for (int64_t d = 0; d < dim; ++d) copy[plane + j * dim + d] = k[a.v_offset + d];
  }
  for (int i = 0; i < kKeyTile / 16; ++i) {
    tile.k[i] = tile.next_k[i] = copy + i * 16 * dim;
    tile.v[i] = tile.next_v[i] = tile.k[i] + plane;
  }
}

// A state of AttentionStateFloats.
struct AttentionState {
  float* out;  // [rows][dim]
  float* max;  // [rows]
  float* sum;  // [rows]
};

SLUICE_INLINE AttentionState StateAt(float* states, int64_t index, int64_t rows, int64_t head_dim) {
  float* out = states + index * AttentionStateFloats(rows, head_dim);
  float* max = out + rows * PaddedHeadDim(head_dim);
  return {out, max, max + rows};
}

// How two states become one.
template <class S>
struct MergeWeights {
  float max;
  typename S::F before, span;

  SLUICE_INLINE MergeWeights(float max_before, float max_of_span) {
    max = max_before > max_of_span ? max_before : max_of_span;
    before = Exp<S>(S::Set1(max_before - max));
    span = Exp<S>(S::Set1(max_of_span - max));
  }
  SLUICE_INLINE typename S::F Out(typename S::F out_before, typename S::F out_of_span) const {
    return S::Fma(out_of_span, span, S::Mul(out_before, before));
  }
  SLUICE_INLINE float Sum(float sum_before, float sum_of_span) const {
    return __builtin_fmaf(sum_of_span, S::First(span), sum_before * S::First(before));
  }
};

// The state of row r moves to `to`, merged with what is there unless it is the first.
template <class S>
SLUICE_INLINE void CloseSpan(const AttentionRows& b, int r, bool first, const AttentionState& to) {
  const float* out = b.out + r * b.dim;
  float* before = to.out + r * b.dim;
  if (first) {
    for (int64_t d = 0; d < b.dim; d += 16) S::Store(before + d, S::Load(out + d));
    to.max[r] = b.max[r];
    to.sum[r] = b.sum[r];
  } else {
    const MergeWeights<S> weights(to.max[r], b.max[r]);
    for (int64_t d = 0; d < b.dim; d += 16) {
      S::Store(before + d, weights.Out(S::Load(before + d), S::Load(out + d)));
    }
    to.max[r] = weights.max;
    to.sum[r] = weights.Sum(to.sum[r], b.sum[r]);
  }
}

template <class S>
SLUICE_INLINE void OpenSpan(const AttentionRows& b, int r) {
  for (int64_t d = 0; d < b.dim; d += 16) S::Store(b.out + r * b.dim + d, S::Zero());
  b.max[r] = -__builtin_inff();
  b.sum[r] = 0.0f;
}

template <class S>
void Bf16Attention(const Bf16AttentionArgs& a) {
  AttentionRows b = StartRows<S>(a);
  uint16_t* copied_keys = reinterpret_cast<uint16_t*>(b.out + kAttentionRows * b.dim);
  float* states = a.states != nullptr ? a.states : a.scratch + AttentionScratchFloats(a.head_dim);
  const bool spans = a.states != nullptr || a.end_key > kSpanKeys;
  for (int64_t first = a.first_key; first < a.end_key; first += kKeyTile) {
    int valid[kAttentionRows];
    const int first_row = VisibleKeys(a, b.rows, first, valid);
    if (first % kSpanKeys == 0 && first > a.first_key) {
      for (int r = 0; r < b.rows; ++r) OpenSpan<S>(b, r);
    }
    Bf16Tile tile;
    if (a.block_size % 16 == 0) {
      FindBf16Keys(a, first, tile);
    } else {
      CopyBf16Keys(a, first, copied_keys, tile);
    }
    AttendBf16Tile<S>(b, first_row, tile, valid);
    if (!spans || ((first + kKeyTile) % kSpanKeys != 0 && first + kKeyTile < a.end_key)) continue;
    const int64_t span = first / kSpanKeys * kSpanKeys;
    const bool merge = a.first_key == 0;
    const AttentionState to = StateAt(states, merge ? 0 : (span - a.first_key) / kSpanKeys, b.rows, a.head_dim);
    for (int r = 0; r < b.rows; ++r) {
      if (a.first_position + r / a.heads >= span) CloseSpan<S>(b, r, !merge || span == 0, to);
    }
  }
  if (a.states != nullptr) return;
  if (spans) {
    const AttentionState all = StateAt(states, 0, b.rows, a.head_dim);
    b.out = all.out;
    b.sum = all.sum;
  }
  FinishRows<S>(a, b);
}

// Columns [d, d + kVectors * 16) of a row.
template <class S, int kVectors>
SLUICE_INLINE void MergeColumns(const MergeArgs& a, int64_t d) {
  const auto state = [&](int i) SLUICE_LAMBDA { return StateAt(const_cast<float*>(a.states), i, a.rows, a.head_dim); };
  const int64_t at = a.row * PaddedHeadDim(a.head_dim) + d;
  AttentionState s = state(0);
  typename S::F acc[kVectors];
  SLUICE_UNROLL
  for (int v = 0; v < kVectors; ++v) acc[v] = S::Load(s.out + at + v * 16);
  float max = s.max[a.row], sum = s.sum[a.row];
  for (int i = 1; i < a.count; ++i) {
    s = state(i);
    const MergeWeights<S> weights(max, s.max[a.row]);
    SLUICE_UNROLL
    for (int v = 0; v < kVectors; ++v) acc[v] = weights.Out(acc[v], S::Load(s.out + at + v * 16));
    max = weights.max;
    sum = weights.Sum(sum, s.sum[a.row]);
  }
  const auto inverse = S::Set1(1.0f / sum);
  SLUICE_UNROLL
  for (int v = 0; v < kVectors; ++v) {
    const int64_t column = d + v * 16, rest = a.head_dim - column;
    if (rest >= 16) {
      S::Store(a.out + column, S::Mul(acc[v], inverse));
    } else {
      S::StorePartial(a.out + column, S::Mul(acc[v], inverse), int(rest));
    }
  }
}

template <class S>
void MergeStates(const MergeArgs& a) {
  int64_t d = 0;
  for (; d + 64 <= a.head_dim; d += 64) MergeColumns<S, 4>(a, d);
  for (; d < a.head_dim; d += 16) MergeColumns<S, 1>(a, d);
}

}  // namespace sluice::kernels::cpu
