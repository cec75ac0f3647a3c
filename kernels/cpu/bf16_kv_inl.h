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
    for (int i = 0; i < kKeyTile / 16; ++i) __builtin_prefetch(next_k[i] + d * 16);
  }
  SLUICE_INLINE void PrefetchValues(int j) const {
    const uint16_t* row = next_v[j / 16] + (j % 16) * head_dim;
    for (int64_t d = 0; d < head_dim; d += 32) __builtin_prefetch(row + d);
  }

  template <class S>
  SLUICE_INLINE typename S::F Value(int j, int64_t d) const {
    return S::LoadBf16(reinterpret_cast<const uint8_t*>(v[j / 16] + (j % 16) * head_dim + d));
  }
};

SLUICE_INLINE const uint16_t* FindKey(const Bf16AttentionArgs& a, const Bf16NextItem& item, int64_t position) {
  position = position < item.keys ? position : (item.keys - 1) / 16 * 16;
  return item.kv + item.blocks[position / a.block_size] * a.block_stride + position % a.block_size * a.head_dim;
}

// Keys past `end` are the last ones again: read, never used.
SLUICE_INLINE void FindBf16Keys(const Bf16AttentionArgs& a, int64_t first, int64_t end, Bf16Tile& tile) {
  tile.head_dim = a.head_dim;
  Bf16NextItem next{a.kv, a.blocks, end};
  int64_t next_first = first + kKeyTile;
  if (next_first >= end && a.next.kv != nullptr) {
    next = a.next;
    next_first = 0;
  }
  for (int i = 0; i < kKeyTile / 16; ++i) {
    tile.k[i] = FindKey(a, {a.kv, a.blocks, end}, first + i * 16);
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
SLUICE_INLINE void CopyBf16Keys(const Bf16AttentionArgs& a, int64_t first, int64_t end, uint16_t* copy,
                                Bf16Tile& tile) {
  const int64_t dim = a.head_dim, plane = kKeyTile * dim;
  tile.head_dim = dim;
  for (int j = 0; j < kKeyTile; ++j) {
    const int64_t position = first + j < end ? first + j : end - 1;
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

// What the spans before the current one gave.
struct EarlierSpans {
  float* out;  // [rows][dim]
  float* max;  // [rows]
  float* sum;  // [rows]
};

// The state of row r moves to `to`, merged with what is there, and starts anew.
template <class S>
SLUICE_INLINE void CloseSpan(const AttentionRows& b, int r, bool first_span, const EarlierSpans& to) {
  float *out = b.out + r * b.dim, *before = to.out + r * b.dim;
  if (first_span) {
    for (int64_t d = 0; d < b.dim; d += 16) S::Store(before + d, S::Load(out + d));
    to.max[r] = b.max[r];
    to.sum[r] = b.sum[r];
  } else {
    const float max = to.max[r] > b.max[r] ? to.max[r] : b.max[r];
    const auto old_weight = Exp<S>(S::Set1(to.max[r] - max)), new_weight = Exp<S>(S::Set1(b.max[r] - max));
    for (int64_t d = 0; d < b.dim; d += 16) {
      S::Store(before + d, S::Fma(S::Load(out + d), new_weight, S::Mul(S::Load(before + d), old_weight)));
    }
    to.max[r] = max;
    to.sum[r] = __builtin_fmaf(b.sum[r], S::First(new_weight), to.sum[r] * S::First(old_weight));
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
  EarlierSpans earlier;
  earlier.out = a.scratch + AttentionScratchFloats(a.head_dim);
  earlier.max = earlier.out + kAttentionRows * b.dim;
  earlier.sum = earlier.max + kAttentionRows;
  const int64_t end = a.first_position + a.tokens;
  const bool spans = end > kSpanKeys;
  for (int64_t first = 0; first < end; first += kKeyTile) {
    int valid[kAttentionRows];
    const int first_row = VisibleKeys(a, b.rows, first, valid);
    if (first % kSpanKeys == 0 && first > 0) {
      for (int r = 0; r < b.rows; ++r) OpenSpan<S>(b, r);
    }
    Bf16Tile tile;
    if (a.block_size % 16 == 0) {
      FindBf16Keys(a, first, end, tile);
    } else {
      CopyBf16Keys(a, first, end, copied_keys, tile);
    }
    AttendBf16Tile<S>(b, first_row, tile, valid);
    if (!spans || ((first + kKeyTile) % kSpanKeys != 0 && first + kKeyTile < end)) continue;
    const int64_t span = first / kSpanKeys * kSpanKeys;
    for (int r = 0; r < b.rows; ++r) {
      if (a.first_position + r / a.heads >= span) CloseSpan<S>(b, r, span == 0, earlier);
    }
  }
  if (spans) {
    b.out = earlier.out;
    b.sum = earlier.sum;
  }
  FinishRows<S>(a, b);
}

}  // namespace sluice::kernels::cpu
