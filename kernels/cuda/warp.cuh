// Sums and maxima over the lanes of a warp, always in the same tree. Every lane gets the result.
#pragma once

namespace sluice::kernels::cuda {

inline constexpr unsigned kAllLanes = 0xffffffffu;

__device__ inline float WarpSum(float value) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) value += __shfl_xor_sync(kAllLanes, value, distance);
  return value;
}

__device__ inline float WarpMax(float value) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, distance));
  return value;
}

// Over the four lanes that hold one row of a matrix fragment (mma.cuh).
__device__ inline float QuadSum(float value) {
  value += __shfl_xor_sync(kAllLanes, value, 1);
  return value + __shfl_xor_sync(kAllLanes, value, 2);
}

__device__ inline float QuadMax(float value) {
  value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, 1));
  return fmaxf(value, __shfl_xor_sync(kAllLanes, value, 2));
}

}  // namespace sluice::kernels::cuda
