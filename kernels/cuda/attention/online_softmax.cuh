// The arithmetic of attention, shared by all its kernels so that they agree in every bit: a warp's 16 query rows (a
// fragment) against a tile of 64 keys, a running maximum over the tiles of a span, and the fold of spans.
//
// Everything here that is rounded is rounded explicitly, so that no compiler contracts it in one kernel and not in
// another. Matrix products are the same sequence of mma for each element: over the head in ascending order, over keys
// in ascending order. A tile without visible keys changes nothing: it may be computed or left out.
#pragma once

#include <cmath>

#include "kernels/cuda/attention/attention_params.cuh"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/warp.cuh"

namespace sluice::kernels::cuda {

inline constexpr int kTileKeys = 64;
inline constexpr int kPieceKeys = 16;
inline constexpr int kTilePieces = kTileKeys / kPieceKeys;
inline constexpr int kTilesASpan = kAttentionSpan / kTileKeys;

// Keys of one head as they lie in shared memory, or values: rows are padded by 16 bytes, so that eight of them lie in
// different banks.
template <int kDim>
struct Piece {
  static constexpr int kStride = kDim + 8;
  __nv_bfloat16 rows[kPieceKeys][kStride];
};

__device__ inline float Exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ inline float Reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// cap * tanh(score * scale_cap), as cap - 2 cap / (e^2x + 1): the error is some 1e-7 of the cap.
__device__ inline float SoftCap(float score, float scale_cap, float cap) {
  constexpr float kTwoLog2E = 2.885390081777926814f;
  const float e = Exp2(__fmul_rn(__fmul_rn(score, scale_cap), kTwoLog2E));
  return __fmaf_rn(__fmul_rn(-2.0f, cap), Reciprocal(__fadd_rn(e, 1.0f)), cap);
}

// The last keys that the two rows of a lane see; the first is given by the window.
struct RowKeys {
  int last[2];
};

// What 16 rows know of a span so far, as D fragments (mma.cuh): a lane holds the rows lane / 4 and lane / 4 + 8.
template <int kDim>
struct SpanSum {
  float sums[kDim / 8][4];
  float weight[2];
  float maximum[2];  // of the scores, before `factor`

  __device__ void Clear() {
#pragma unroll
    for (int d = 0; d < kDim / 8; ++d) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[d][i] = 0;
    }
    weight[0] = weight[1] = 0;
    maximum[0] = maximum[1] = -INFINITY;
  }
};

// scores[16 rows][16 keys], as two D fragments, of one step of 16 along the head.
template <int kDim>
__device__ inline void ScorePiece(float (&low)[4], float (&high)[4], const uint32_t (&q)[4], const uint32_t (&k)[4]) {
  MultiplyAdd(low, q, {k[0], k[1]});
  MultiplyAdd(high, q, {k[2], k[3]});
}

// The B fragments of 16 keys, elements 16 d .. of their head.
template <int kDim>
__device__ inline void LoadKeys(uint32_t (&k)[4], const Piece<kDim>& piece, int d, int lane) {
  LoadMatrices4(k, &piece.rows[lane % 8 + lane / 16 * 8][d * 16 + lane / 8 % 2 * 8]);
}

// The B fragments of 16 values, elements 16 d .. of their head.
template <int kDim>
__device__ inline void LoadValues(uint32_t (&v)[4], const Piece<kDim>& piece, int d, int lane) {
  LoadMatrices4Transposed(v, &piece.rows[lane % 16][d * 16 + lane / 16 * 8]);
}

// Caps the scores of a tile, which begins at key `tile`, and hides those that a row does not see.
// `masked`: there are such.
__device__ inline void CapAndMask(float (&scores)[2 * kTilePieces][4], const RowKeys& keys, int tile, bool masked,
                                  const AttentionParams& p, int lane) {
  if (p.cap > 0) {
#pragma unroll
    for (int n = 0; n < 2 * kTilePieces; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) scores[n][i] = SoftCap(scores[n][i], p.scale_cap, p.cap);
    }
  }
  if (!masked) return;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    // Keys first < 8 n <= last of the tile's, from the lane's own on.
    const int last = keys.last[i / 2] - tile - lane % 4 * 2 - i % 2, first = last - p.window;
#pragma unroll
    for (int n = 0; n < 2 * kTilePieces; ++n) {
      if (n * 8 > last || n * 8 <= first) scores[n][i] = -INFINITY;
    }
  }
}

// Scores to weights, as A fragments of 16 keys each; the sum so far shrinks to the new maximum.
template <int kDim>
__device__ inline void Weigh(uint32_t (&weights)[kTilePieces][4], const float (&scores)[2 * kTilePieces][4],
                             SpanSum<kDim>& sum, const AttentionParams& p) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float maximum = sum.maximum[r];
    const float before = __fmul_rn(maximum, p.factor);
    float here = -INFINITY;
#pragma unroll
    for (int n = 0; n < 2 * kTilePieces; ++n) {
      here = fmaxf(here, fmaxf(scores[n][2 * r], scores[n][2 * r + 1]));
    }
    maximum = fmaxf(maximum, QuadMax(here));
    sum.maximum[r] = maximum;
    // No key yet: any finite number makes weights of zero of scores of -infinity.
    const float now = maximum == -INFINITY ? 0 : __fmul_rn(maximum, p.factor);
    const float shrink = Exp2(__fsub_rn(before, now));
#pragma unroll
    for (int n = 0; n < 2 * kTilePieces; ++n) {
      const float a = Exp2(__fmaf_rn(scores[n][2 * r], p.factor, -now));
      const float b = Exp2(__fmaf_rn(scores[n][2 * r + 1], p.factor, -now));
      weights[n / 2][n % 2 * 2 + r] = PackBf16(a, b);
    }
#pragma unroll
    for (int d = 0; d < kDim / 8; ++d) {
      sum.sums[d][2 * r] = __fmul_rn(sum.sums[d][2 * r], shrink);
      sum.sums[d][2 * r + 1] = __fmul_rn(sum.sums[d][2 * r + 1], shrink);
    }
    sum.weight[r] = __fmul_rn(sum.weight[r], shrink);
  }
}

template <int kDim>
__device__ inline void AddValues(SpanSum<kDim>& sum, const uint32_t (&weights)[4], const uint32_t (&v)[4], int d) {
  MultiplyAdd(sum.sums[2 * d], weights, {v[0], v[1]});
  MultiplyAdd(sum.sums[2 * d + 1], weights, {v[2], v[3]});
}

// Columns of ones: each of them gives the sums of the weights.
template <int kDim>
__device__ inline void AddWeights(SpanSum<kDim>& sum, const uint32_t (&weights)[kTilePieces][4]) {
  constexpr uint32_t kOnes = 0x3f803f80;
  float sums[4] = {sum.weight[0], sum.weight[0], sum.weight[1], sum.weight[1]};
#pragma unroll
  for (int j = 0; j < kTilePieces; ++j) MultiplyAdd(sums, weights[j], {kOnes, kOnes});
  sum.weight[0] = sums[0];
  sum.weight[1] = sums[2];
}

// How a row's total goes on with the next span: total' = total * keep + span * take.
struct Fold {
  float keep, take;

  // maximum: of the total, in units of log 2, -infinity at first; becomes that of both.
  __device__ Fold(float& maximum, float span_maximum) {
    const float both = fmaxf(maximum, span_maximum);
    const float now = both == -INFINITY ? 0 : both;
    keep = Exp2(__fsub_rn(maximum, now));
    take = Exp2(__fsub_rn(span_maximum, now));
    maximum = both;
  }
  // The zero makes one sign of all zeros.
  __device__ float operator()(float total, float span) const {
    return __fmaf_rn(total, keep, __fmaf_rn(span, take, 0.0f));
  }
};

// What a row's total is multiplied with at the end.
__device__ inline float Normaliser(float maximum, float weight, const float* sinks, int head) {
  if (sinks == nullptr) return __frcp_rn(weight);
  constexpr float kLog2E = 1.4426950408889634f;
  float all = maximum;
  const Fold fold(all, __fmul_rn(sinks[head], kLog2E));
  return __fmul_rn(fold.keep, __frcp_rn(__fmaf_rn(weight, fold.keep, fold.take)));
}

}  // namespace sluice::kernels::cuda
