#include "kernels/cuda/rms_norm.h"
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

__device__ float4 ToFloats(const Bf16x4& v) {
  const float2 low = __bfloat1622float2(v.low), high = __bfloat1622float2(v.high);
  return {low.x, low.y, high.x, high.y};
}

__device__ float SumOfSquares(const float4& v) {
  return fmaf(v.x, v.x, fmaf(v.y, v.y, fmaf(v.z, v.z, v.w * v.w)));
}

template <int kThreads>
__global__ void __launch_bounds__(kThreads) RmsNormKernel(const RmsNormArgs args) {
  __shared__ float warp_sums[kThreads / 32];
  const size_t row = size_t(blockIdx.x) * size_t(args.width);
  const int vectors = args.width / kVector;
  float4* x = reinterpret_cast<float4*>(args.x + row);
  const Bf16x4* delta = args.delta == nullptr ? nullptr : reinterpret_cast<const Bf16x4*>(args.delta + row);

  float4 kept[kKept];
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kKept; ++i) {
    const int at = int(threadIdx.x) + i * kThreads;
    if (at >= vectors) continue;
    kept[i] = x[at];
    if (delta != nullptr) {
      const float4 d = ToFloats(delta[at]);
      kept[i] = {kept[i].x + d.x, kept[i].y + d.y, kept[i].z + d.z, kept[i].w + d.w};
      x[at] = kept[i];
    }
    sum += SumOfSquares(kept[i]);
  }
  sum = WarpSum(sum);
  if (threadIdx.x % 32 == 0) warp_sums[threadIdx.x / 32] = sum;
  __syncthreads();
  float total = 0;
#pragma unroll
  for (int i = 0; i < kThreads / 32; ++i) total += warp_sums[i];
  const float scale = rsqrtf(total / float(args.width) + args.eps);

  const Bf16x4* weight = reinterpret_cast<const Bf16x4*>(args.weight);
  Bf16x4* out = reinterpret_cast<Bf16x4*>(args.out + row);
#pragma unroll
  for (int i = 0; i < kKept; ++i) {
    const int at = int(threadIdx.x) + i * kThreads;
    if (at >= vectors) continue;
    const float4 w = ToFloats(weight[at]), v = kept[i];
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
  if (args.rows < 0 || args.width <= 0 || args.width % kVector != 0 || args.width > 1024 * kKept * kVector) {
    return cudaErrorInvalidValue;
  }
  if (args.rows == 0) return cudaSuccess;
  if (args.width <= 128 * kKept * kVector) return Run<128>(args, stream);
  if (args.width <= 512 * kKept * kVector) return Run<512>(args, stream);
  return Run<1024>(args, stream);
}

}  // namespace sluice::kernels::cuda
