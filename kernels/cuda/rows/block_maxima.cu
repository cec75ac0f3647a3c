#include "kernels/cuda/rows/block_maxima.h"
#include "kernels/cuda/warp.cuh"

namespace sluice::kernels::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kBlock = 64;

// A warp a block of logits, two a lane. fmaxf gives the other one where one is NaN.
__global__ void __launch_bounds__(kWarps * 32) BlockMaximaKernel(const BlockMaximaArgs args) {
  const int block = int(blockIdx.x) * kWarps + int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
  if (block * kBlock >= args.width) return;
  const float lowest = -__int_as_float(0x7f800000);
  const float* x = args.x + blockIdx.y * args.x_stride;
  float largest = lowest;
#pragma unroll
  for (int i = 0; i < kBlock; i += 32) {
    const int at = block * kBlock + i + lane;
    largest = fmaxf(largest, at < args.width ? x[at] : lowest);
  }
  largest = WarpMax(largest);
  if (lane == 0) args.maxima[blockIdx.y * args.maxima_stride + block] = largest;
}

}  // namespace

cudaError_t BlockMaxima(const BlockMaximaArgs& args, cudaStream_t stream) {
  if (args.rows < 0 || args.rows > 65535 || args.width <= 0) return cudaErrorInvalidValue;
  if (args.rows == 0) return cudaSuccess;
  const int blocks = (args.width + kBlock - 1) / kBlock;
  BlockMaximaKernel<<<dim3(unsigned((blocks + kWarps - 1) / kWarps), unsigned(args.rows)), kWarps * 32, 0, stream>>>(
      args);
  return cudaGetLastError();
}

}  // namespace sluice::kernels::cuda
