// The kernels of paged_kv.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/attention_inl.h"
#include "kernels/cpu/int8/rotation_inl.h"
#include "kernels/cpu/paged_kv.h"
#include "kernels/cpu/simd_macros.h"

namespace sluice::kernels::cpu {

// Round to nearest even. A number that is not one stays so.
SLUICE_INLINE uint16_t RoundToBf16(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  return uint16_t((bits & 0x7fffffffu) > 0x7f800000u ? (bits >> 16) | 0x40u : rounded);
}

// Where the element d of a slot's K lies, in elements from the head's first, and how far it is to d + 1.
struct KeyPlace {
  int64_t first, stride;
  SLUICE_INLINE KeyPlace(int slot, int block_size, int64_t head_dim) {
    const bool lanes = block_size % 16 == 0;
    first = lanes ? int64_t(slot / 16) * 16 * head_dim + slot % 16 : slot * head_dim;
    stride = lanes ? 16 : 1;
  }
};

// How elements are stored: kBytes each, kScaled if a scale of the token belongs to them.
struct Bf16Elements {
  static constexpr int64_t kBytes = 2;
  static constexpr bool kScaled = false;
  template <class S>
  static SLUICE_INLINE typename S::F Load(const std::byte* p) {
    return S::LoadBf16(reinterpret_cast<const uint8_t*>(p));
  }
  // x [n] to `to`, elements `stride` apart; returns the scale.
  template <class S>
  static SLUICE_INLINE float Store(const float* x, int n, std::byte* to, int64_t stride) {
    for (int d = 0; d < n; ++d) {
      const uint16_t bits = RoundToBf16(x[d]);
      std::memcpy(to + d * stride * 2, &bits, 2);
    }
    return 1.0f;
  }
};

struct Int8Elements {
  static constexpr int64_t kBytes = 1;
  static constexpr bool kScaled = true;
  template <class S>
  static SLUICE_INLINE typename S::F Load(const std::byte* p) {
    return S::ToF(S::SextI8(reinterpret_cast<const uint8_t*>(p)));
  }
  // What is not a number, as in RoundRow (int8/round_inl.h).
  template <class S>
  static SLUICE_INLINE float Store(const float* x, int n, std::byte* to, int64_t stride) {
    const auto vector = [&](int d)
                            SLUICE_LAMBDA { return n - d >= 16 ? S::Load(x + d) : S::LoadPartial(x + d, n - d); };
    auto top = S::Zero();
    for (int d = 0; d < n; d += 16) top = S::Max(top, S::Abs(vector(d)));
    const float largest = S::ReduceMax(top);
    const auto inverse = S::Set1(largest > 0.0f ? 127.0f / largest : 0.0f);
    for (int d = 0; d < n; d += 16) {
      uint8_t bytes[16];
      S::StoreU8(bytes, S::Min(S::Max(S::Mul(vector(d), inverse), S::Set1(-127.0f)), S::Set1(127.0f)));
      for (int i = 0; i < 16 && d + i < n; ++i) to[(d + i) * stride] = std::byte(bytes[i] ^ 0x80);
    }
    return largest / 127.0f;
  }
};

template <class S, class E>
void WriteKv(const float* k, const float* v, int head_dim, int slot, int block_size, const KvStrides& strides,
             std::byte* kv) {
  const KeyPlace key(slot, block_size, head_dim);
  const float k_scale = E::template Store<S>(k, head_dim, kv + key.first * E::kBytes, key.stride);
  const float v_scale = E::template Store<S>(v, head_dim, kv + strides.v + int64_t(slot) * head_dim * E::kBytes, 1);
  if (!E::kScaled) return;
  const int64_t at = strides.scales + slot * int64_t(sizeof(float));
  std::memcpy(kv + at, &k_scale, sizeof k_scale);
  std::memcpy(kv + strides.v + at, &v_scale, sizeof v_scale);
}

// Sixteen keys.
struct KeyGroup {
  const std::byte* k;     // [head_dim][16]
  const std::byte* v;     // [16][head_dim]
  const float* k_scales;  // [16] if there are any
  const float* v_scales;
};

// kKeyTile keys of a sequence, sixteen at a time.
template <class E>
struct PagedTile {
  KeyGroup groups[kKeyTile / 16];
  int64_t head_dim;

  // What the next tile will read is asked for while this one is computed: K beside the scores, V beside the values.
  // Into the second cache: it has more misses at once than the first, and nothing waits for the way from there.
  KeyGroup next[kKeyTile / 16];

  static SLUICE_INLINE void Prefetch(const void* p) { __builtin_prefetch(p, 0, 2); }
  SLUICE_INLINE void PrefetchKeys(int64_t d) const {
    if (d * 16 * E::kBytes % 64 != 0) return;  // several rows of sixteen keys are a line
    SLUICE_UNROLL
    for (const KeyGroup& group : next) {
      Prefetch(group.k + d * 16 * E::kBytes);
      if (E::kScaled && d == 0) {
        Prefetch(group.k_scales);
        Prefetch(group.v_scales);
      }
    }
  }
  SLUICE_INLINE void PrefetchValues(int j) const {
    const std::byte* row = next[j / 16].v + (j % 16) * head_dim * E::kBytes;
    for (int64_t at = 0; at < head_dim * E::kBytes; at += 64) Prefetch(row + at);
  }

  template <class S>
  SLUICE_INLINE typename S::F Value(int j, int64_t d) const {
    return E::template Load<S>(groups[j / 16].v + ((j % 16) * head_dim + d) * E::kBytes);
  }
  // The weights of the first `count` values, with their scales.
  template <class S>
  SLUICE_INLINE void ScaleWeights(float* weights, int count) const {
    if constexpr (E::kScaled) {
      for (int j = 0; j < count; j += 16) {
        S::Store(weights + j, S::Mul(S::Load(weights + j), S::Load(groups[j / 16].v_scales)));
      }
    }
  }
};

// Keys past the end are the last ones again: read, never used.
template <class E>
SLUICE_INLINE KeyGroup FindGroup(const PagedAttentionArgs& a, const NextKeys& keys, int64_t position) {
  position = position < keys.end_key ? position : (keys.end_key - 1) / 16 * 16;
  const std::byte* head = keys.kv + keys.blocks[position / a.block_size] * a.strides.block;
  const int64_t slot = position % a.block_size, at = slot * a.head_dim * E::kBytes;
  const auto* scales = reinterpret_cast<const float*>(head + a.strides.scales) + slot;
  const auto* v_scales = reinterpret_cast<const float*>(head + a.strides.v + a.strides.scales) + slot;
  return {head + at, head + a.strides.v + at, scales, v_scales};
}

template <class E>
SLUICE_INLINE void FindGroups(const PagedAttentionArgs& a, int64_t first, PagedTile<E>& tile) {
  tile.head_dim = a.head_dim;
  const NextKeys here{a.kv, a.blocks, a.first_key, a.end_key};
  NextKeys next = here;
  int64_t next_first = first + kKeyTile;
  if (next_first >= a.end_key && a.next.kv != nullptr) {
    next = a.next;
    next_first = a.next.first_key;
  }
  for (int i = 0; i < kKeyTile / 16; ++i) {
    tile.groups[i] = FindGroup<E>(a, here, first + i * 16);
    tile.next[i] = FindGroup<E>(a, next, next_first + i * 16);
  }
}

// scores[r][j] of kRows rows and kVectors * 16 keys: lanes are keys.
template <class S, class E, int kRows, int kVectors>
SLUICE_INLINE void KeyScores(const AttentionRows& b, int r, const PagedTile<E>& tile, int first_vector) {
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
      key[v] = S::KeepAll(E::template Load<S>(tile.groups[first_vector + v].k + d * 16 * E::kBytes));
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
    for (int v = 0; v < kVectors; ++v) {
      if constexpr (E::kScaled) acc[i][v] = S::Mul(acc[i][v], S::Load(tile.groups[first_vector + v].k_scales));
      S::Store(b.scores + (r + i) * kKeyTile + (first_vector + v) * 16, acc[i][v]);
    }
  }
}

template <class S, class E, int kRows>
SLUICE_INLINE void TileScores(const AttentionRows& b, int r, const PagedTile<E>& tile, int count) {
  constexpr int kWide = S::kScoreVectors;
  for (int v = 0; v < (count + 15) / 16; v += kWide) KeyScores<S, E, kRows, kWide>(b, r, tile, v);
}

template <class S, class E>
void AttendTile(const AttentionRows& b, int first_row, const PagedTile<E>& tile, const int* valid) {
  constexpr int kMost = S::kScoreRows;
  int r = first_row;
  for (; r + kMost <= b.rows; r += kMost) TileScores<S, E, kMost>(b, r, tile, valid[r + kMost - 1]);
  if (kMost > 3 && r + 3 <= b.rows) {
    TileScores<S, E, 3>(b, r, tile, valid[r + 2]);
    r += 3;
  }
  for (; r < b.rows; ++r) TileScores<S, E, 1>(b, r, tile, valid[r]);
  FinishTile<S>(b, first_row, tile, valid);
  for (int j = valid[0] > 0 ? valid[0] : 0; j < kKeyTile; ++j) tile.PrefetchValues(j);  // what the values left out
}

// The same for blocks that are no whole vectors: copies of K turned to [head_dim][16], of V, and of their scales.
template <class E>
SLUICE_INLINE void CopyKeys(const PagedAttentionArgs& a, int64_t first, std::byte* copy, PagedTile<E>& tile) {
  const int64_t dim = a.head_dim, plane = kKeyTile * dim * E::kBytes;
  float* k_scales = reinterpret_cast<float*>(copy);
  float* v_scales = k_scales + kKeyTile;
  std::byte* k = copy + 2 * kKeyTile * sizeof(float);
  tile.head_dim = dim;
  for (int j = 0; j < kKeyTile; ++j) {
    const int64_t position = first + j < a.end_key ? first + j : a.end_key - 1, slot = position % a.block_size;
    const std::byte* head = a.kv + a.blocks[position / a.block_size] * a.strides.block;
    const std::byte* from = head + slot * dim * E::kBytes;
    std::byte* to = k + (j / 16 * 16 * dim + j % 16) * E::kBytes;
    for (int64_t d = 0; d < dim; ++d) std::memcpy(to + d * 16 * E::kBytes, from + d * E::kBytes, E::kBytes);
    std::memcpy(k + plane + j * dim * E::kBytes, from + a.strides.v, uint64_t(dim * E::kBytes));
    if (E::kScaled) {
      std::memcpy(k_scales + j, head + a.strides.scales + slot * 4, 4);
      std::memcpy(v_scales + j, head + a.strides.v + a.strides.scales + slot * 4, 4);
    }
  }
  for (int i = 0; i < kKeyTile / 16; ++i) {
    const int64_t at = i * 16 * dim * E::kBytes;
    tile.groups[i] = tile.next[i] = {k + at, k + plane + at, k_scales + i * 16, v_scales + i * 16};
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

template <class S, class E>
void AttendPages(const PagedAttentionArgs& a) {
  AttentionRows b = StartRows<S>(a);
  std::byte* copied_keys = reinterpret_cast<std::byte*>(b.out + kAttentionRows * b.dim);
  float* states = a.states != nullptr ? a.states : a.scratch + AttentionScratchFloats(a.head_dim);
  const bool spans = a.states != nullptr || a.end_key > kSpanKeys;
  for (int64_t first = a.first_key; first < a.end_key; first += kKeyTile) {
    int valid[kAttentionRows];
    const int first_row = VisibleKeys(a, b.rows, first, valid);
    if (first % kSpanKeys == 0 && first > a.first_key) {
      for (int r = 0; r < b.rows; ++r) OpenSpan<S>(b, r);
    }
    PagedTile<E> tile;
    if (a.block_size % 16 == 0) {
      FindGroups<E>(a, first, tile);
    } else {
      CopyKeys<E>(a, first, copied_keys, tile);
    }
    AttendTile<S, E>(b, first_row, tile, valid);
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
