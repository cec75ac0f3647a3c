// One row of logits as the sampling kernels see it, and walking through it.
#pragma once

#include <cstdint>

#include "kernels/backend.h"
#include "kernels/cuda/warp.cuh"
#include "kernels/sampling_math.h"

namespace sluice::kernels::cuda {

__device__ inline float NegativeInfinity() {
  return -__int_as_float(0x7f800000);
}
__device__ inline float Clean(float x) {
  return x == x ? x : NegativeInfinity();
}

// Ascending with x; -0 counts as +0, NaN as -infinity.
__device__ inline uint32_t LogitKey(float x) {
  const uint32_t bits = uint32_t(__float_as_int(Clean(x) + 0.0f));
  return bits >> 31 ? ~bits : bits | 0x80000000u;
}

// Ascending from the worst token to the best: by logit, and among equals by descending id. Each token's is its own.
__device__ inline uint64_t Rank(float x, int id) {
  return uint64_t(LogitKey(x)) << 32 | uint32_t(~id);
}
// No token of a block with this maximum ranks higher.
__device__ inline uint64_t RankBound(float maximum) {
  return uint64_t(LogitKey(maximum)) << 32 | 0xffffffffu;
}

struct LogitRow {
  float* x;       // [vocab]
  float* maxima;  // [blocks]
  int vocab, blocks;
};

// visit(id, logit) for the tokens of all blocks [begin, end) whose maximum `wants`; all threads of the CTA take part, a
// lane of a warp sees the ids lane and lane + 32 of a block. The maxima are read by 32 at once, so that blocks that
// nobody wants cost little.
template <typename Wants, typename Visit>
__device__ inline void VisitBlocks(const LogitRow& row, int begin, int end, Wants wants, Visit visit) {
  constexpr int kAtOnce = 4;
  const int lane = int(threadIdx.x) % 32, warps = int(blockDim.x) / 32;
  for (int first = begin + int(threadIdx.x) / 32 * 32; first < end; first += warps * 32) {
    const bool wanted = first + lane < end && wants(row.maxima[first + lane]);
    unsigned left = __ballot_sync(kAllLanes, wanted);
    while (left != 0) {
      int ids[2 * kAtOnce];
      float x[2 * kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int block = left != 0 ? first + __ffs(int(left)) - 1 : row.blocks;
        left &= left - 1;
        ids[2 * i] = block * kLogitBlock + lane;
        ids[2 * i + 1] = ids[2 * i] + 32;
      }
#pragma unroll
      for (int i = 0; i < 2 * kAtOnce; ++i) x[i] = ids[i] < row.vocab ? row.x[ids[i]] : 0.0f;
#pragma unroll
      for (int i = 0; i < 2 * kAtOnce; ++i) {
        if (ids[i] < row.vocab) visit(ids[i], x[i]);
      }
    }
  }
}

// Over the CTA; every thread gets the result. `shared` is [32], free again after the next barrier.
template <typename T, typename Fold>
__device__ inline T FoldThreads(T value, Fold fold, T* shared) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    value = fold(value, __shfl_xor_sync(kAllLanes, value, distance));
  }
  __syncthreads();  // who read `shared` before is done
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
  __syncthreads();
  value = shared[0];
  for (int warp = 1; warp < int(blockDim.x) / 32; ++warp) value = fold(value, shared[warp]);
  return value;
}

__device__ inline float LargestOf(const LogitRow& row, float* shared) {
  float largest = NegativeInfinity();
  for (int block = int(threadIdx.x); block < row.blocks; block += int(blockDim.x)) {
    largest = fmaxf(largest, row.maxima[block]);
  }
  return FoldThreads(
      largest, [](float a, float b) { return fmaxf(a, b); }, shared);
}

}  // namespace sluice::kernels::cuda
