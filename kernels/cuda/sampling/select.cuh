// The k best tokens of a row, and the fewest best that hold a mass, as one threshold: the lowest Rank that is in. Found
// digit by digit, by counting; exact for any number of equal logits. By all kSelectThreads threads of a CTA.
#pragma once

#include <cstdint>

#include "kernels/cuda/sampling/row.cuh"

namespace sluice::kernels::cuda {

inline constexpr int kSelectThreads = 512;
inline constexpr int kDigitValues = 2048;

// A 64-bit sum in two words of shared memory, as a GPU has 32-bit atomics there: the carry is what the lower one tells.
__device__ inline void AddShared(uint32_t* words, uint64_t value) {
  const uint32_t low = uint32_t(value), before = atomicAdd(&words[0], low);
  const uint32_t high = uint32_t(value >> 32) + (before + low < before ? 1u : 0u);
  if (high != 0) atomicAdd(&words[1], high);
}
__device__ inline uint64_t SharedSum(const uint32_t* words) {
  return uint64_t(words[1]) << 32 | words[0];
}

struct SelectShared {
  uint32_t counts[kDigitValues];
  uint32_t masses[kDigitValues][2];
  uint64_t warp_sums[kSelectThreads / 32];
  int found;
  uint64_t before;
};

template <typename T>
__device__ inline void Clear(T* words, int count) {
  for (int i = int(threadIdx.x); i < count; i += int(blockDim.x)) words[i] = 0;
}

struct Crossing {
  int at;           // the first i with before + value(0) + ... + value(i) >= wanted
  uint64_t before;  // without value(i)
};

// REQUIRES: there is one, and before < wanted; count is a multiple of kSelectThreads; what `value` reads is there.
template <typename Value>
__device__ inline Crossing FindCrossing(int count, uint64_t before, uint64_t wanted, Value value,
                                        SelectShared& shared) {
  const int each = count / kSelectThreads, lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
  uint64_t mine = 0;
  for (int i = 0; i < each; ++i) mine += value(int(threadIdx.x) * each + i);
  uint64_t sum = mine;  // of this and the lower lanes
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const uint64_t other = __shfl_up_sync(kAllLanes, sum, distance);
    if (lane >= distance) sum += other;
  }
  if (lane == 31) shared.warp_sums[warp] = sum;
  __syncthreads();
  for (int w = 0; w < warp; ++w) before += shared.warp_sums[w];
  before += sum - mine;
  if (before < wanted && before + mine >= wanted) {
    int at = int(threadIdx.x) * each;
    while (before + value(at) < wanted) before += value(at++);
    shared.found = at;
    shared.before = before;
  }
  __syncthreads();
  const Crossing crossing{shared.found, shared.before};
  __syncthreads();  // `shared` may be used again
  return crossing;
}

struct Digit {
  int shift, width;

  // Of a 64-bit rank: three of its logit, three of its id.
  __device__ explicit Digit(int index)
      : shift(53 - 11 * index + (index >= 2) + (index == 5)), width(index % 3 == 2 ? 10 : 11) {}
  // Descending: the best value of the digit is 0.
  __device__ int Of(uint64_t rank) const { return int(~(rank >> shift) & ((1u << width) - 1)); }
  __device__ uint64_t Ranks(int value) const { return uint64_t(~uint32_t(value) & ((1u << width) - 1)) << shift; }
  // Whether the digits before this one are those of `prefix`.
  __device__ bool Matches(uint64_t rank, uint64_t prefix) const {
    const int above = shift + width;
    return above >= 64 || (rank ^ prefix) >> above == 0;
  }
};

// The k-th largest of the maxima: at least k tokens are no smaller. REQUIRES: 1 <= k <= row.blocks.
__device__ inline uint32_t KthMaximum(const LogitRow& row, int k, SelectShared& shared) {
  uint64_t prefix = 0, better = 0;
  for (int index = 0; index < 3; ++index) {
    const Digit digit(index);
    Clear(shared.counts, kDigitValues);
    __syncthreads();
    for (int block = int(threadIdx.x); block < row.blocks; block += int(blockDim.x)) {
      const uint64_t rank = uint64_t(LogitKey(row.maxima[block])) << 32;
      if (digit.Matches(rank, prefix)) atomicAdd(&shared.counts[digit.Of(rank)], 1u);
    }
    __syncthreads();
    const Crossing crossing = FindCrossing(
        kDigitValues, better, uint64_t(k), [&](int i) { return uint64_t(shared.counts[i]); }, shared);
    prefix |= digit.Ranks(crossing.at);
    better = crossing.before;
  }
  return uint32_t(prefix >> 32);
}

// The rank of the k-th best token, or one between it and the next. REQUIRES: 1 <= k <= row.vocab.
__device__ inline uint64_t SelectBest(const LogitRow& row, int k, SelectShared& shared) {
  const uint64_t floor = k <= row.blocks ? uint64_t(KthMaximum(row, k, shared)) << 32 : 0;
  uint64_t prefix = 0, better = 0;
  for (int index = 0; index < 6; ++index) {
    const Digit digit(index);
    Clear(shared.counts, kDigitValues);
    __syncthreads();
    VisitBlocks(
        row, 0, row.blocks, [&](float maximum) { return RankBound(maximum) >= max(floor, prefix); },
        [&](int id, float x) {
          const uint64_t rank = Rank(x, id);
          if (rank >= floor && digit.Matches(rank, prefix)) atomicAdd(&shared.counts[digit.Of(rank)], 1u);
        });
    __syncthreads();
    const Crossing crossing = FindCrossing(
        kDigitValues, better, uint64_t(k), [&](int i) { return uint64_t(shared.counts[i]); }, shared);
    const bool whole = crossing.before + shared.counts[crossing.at] == uint64_t(k);
    __syncthreads();
    prefix |= digit.Ranks(crossing.at);
    better = crossing.before;
    if (whole) break;  // all tokens that begin with these digits are in
  }
  return max(prefix, floor);
}

struct Weighing {
  float max;
  double inverse_temperature, mass_scale;
  float class_scale;

  __device__ uint64_t Mass(float x) const {
    return MassOf(DetExp(WeightExponent(Clean(x), max, inverse_temperature)), mass_scale);
  }
  __device__ int Class(float x) const { return WeightClass(Clean(x), max, class_scale); }
};

// The rank of the last token that is needed so that the tokens from the best on have the mass `wanted`. That token is
// of class `crossing`, and all better classes have the mass `before` < wanted; only tokens of rank >= floor count.
__device__ inline uint64_t SelectMass(const LogitRow& row, const Weighing& weighing, uint64_t floor, int crossing,
                                      uint64_t before, uint64_t wanted, SelectShared& shared) {
  uint64_t prefix = 0;
  for (int index = 0; index < 6; ++index) {
    const Digit digit(index);
    Clear(shared.counts, kDigitValues);
    Clear(&shared.masses[0][0], 2 * kDigitValues);
    __syncthreads();
    const auto wants = [&](float maximum) {
      return weighing.Class(maximum) <= crossing && RankBound(maximum) >= max(floor, prefix);
    };
    VisitBlocks(row, 0, row.blocks, wants, [&](int id, float x) {
      const uint64_t rank = Rank(x, id);
      if (rank < floor || !digit.Matches(rank, prefix) || weighing.Class(x) != crossing) return;
      atomicAdd(&shared.counts[digit.Of(rank)], 1u);
      AddShared(shared.masses[digit.Of(rank)], weighing.Mass(x));
    });
    __syncthreads();
    const Crossing at = FindCrossing(
        kDigitValues, before, wanted, [&](int i) { return SharedSum(shared.masses[i]); }, shared);
    const bool one = shared.counts[at.at] == 1;
    __syncthreads();
    prefix |= digit.Ranks(at.at);
    before = at.before;
    if (!one) continue;
    // It alone has these digits in its class; another class may have tokens with them.
    VisitBlocks(row, 0, row.blocks, wants, [&](int id, float x) {
      const uint64_t rank = Rank(x, id);
      if (rank >= floor && (rank ^ prefix) >> digit.shift == 0 && weighing.Class(x) == crossing) shared.before = rank;
    });
    __syncthreads();
    const uint64_t rank = shared.before;
    __syncthreads();
    return rank;
  }
  return prefix;
}

}  // namespace sluice::kernels::cuda
