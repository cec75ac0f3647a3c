#include "kernels/cuda/rows/rms_norm.h"
#include "kernels/cuda/warp.cuh"

namespace sluice::kernels::cuda {
namespace {

// Four elements of a row at a time, as many as kKept times by each thread: the row stays in registers between its sum
// and its scaling.
constexpr int kVector = 4;
constexpr int kKept = 8;

struct Bf16x4 {
  __nv_bfloat162 low, high;
};

__device__ float SumOfSquares(const float4& v) {
  return fmaf(v.x, v.x, fmaf(v.y, v.y, fmaf(v.z, v.z, v.w * v.w)));
}

template <int kThreads>
__global__ void __launch_bounds__(kThreads) RmsNormKernel(const RmsNormArgs args) {
  __shared__ float warp_sums[kThreads / 32];
  const int row = int(blockIdx.x), from = args.chosen == nullptr ? row : args.chosen[row];
  const int vectors = (args.width + kVector - 1) / kVector;
  const float4* x = reinterpret_cast<const float4*>(args.x + from * args.x_stride);

  float4 kept[kKept];
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kKept; ++i) {
    const int at = int(threadIdx.x) + i * kThreads;
    if (at >= vectors) continue;
    kept[i] = x[at];
    sum += SumOfSquares(kept[i]);
  }
  sum = WarpSum(sum);
  if (threadIdx.x % 32 == 0) warp_sums[threadIdx.x / 32] = sum;
  __syncthreads();
  float total = 0;
#pragma unroll
  for (int i = 0; i < kThreads / 32; ++i) total += warp_sums[i];
  const float scale = rsqrtf(total / float(args.width) + args.eps);

  const float4* weight = reinterpret_cast<const float4*>(args.weight);
  Bf16x4* out = reinterpret_cast<Bf16x4*>(args.out + row * args.out_stride);
#pragma unroll
  for (int i = 0; i < kKept; ++i) {
    const int at = int(threadIdx.x) + i * kThreads;
    if (at >= vectors) continue;
    const float4 w = weight[at], v = kept[i];
    out[at] = {__floats2bfloat162_rn(v.x * scale * w.x, v.y * scale * w.y),
               __floats2bfloat162_rn(v.z * scale * w.z, v.w * scale * w.w)};
  }
}

template <int kThreads>
cudaError_t Run(const RmsNormArgs& args, cudaStream_t stream) {
  RmsNormKernel<kThreads><<<unsigned(args.rows), kThreads, 0, stream>>>(args);
  return cudaGetLastError();
}

}  // namespace

cudaError_t RmsNorm(const RmsNormArgs& args, cudaStream_t stream) {
  if (args.rows < 0 || args.width <= 0 || args.width > 1024 * kKept * kVector || args.x_stride % kVector != 0 ||
      args.out_stride % kVector != 0) {
    return cudaErrorInvalidValue;
  }
  if (args.rows == 0) return cudaSuccess;
  if (args.width <= 128 * kKept * kVector) return Run<128>(args, stream);
  if (args.width <= 512 * kKept * kVector) return Run<512>(args, stream);
  return Run<1024>(args, stream);
}

}  // namespace sluice::kernels::cuda
