#include "tests/host_cuda/plugin/sample_kernels.h"

namespace host_cuda::sample {
namespace {

constexpr int kThreads = 32;

__global__ void ScaleAndAddKernel(float* out, const float* in, float factor, float term, int count) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) out[i] = factor * in[i] + term;
}

__global__ void AccumulateKernel(float* sum, const float* in, int count) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) sum[i] += in[i];
}

int Blocks(int count) {
  return (count + kThreads - 1) / kThreads;
}

}  // namespace

cudaError_t ScaleAndAdd(float* out, const float* in, float factor, float term, int count, cudaStream_t stream) {
  ScaleAndAddKernel<<<Blocks(count), kThreads, 0, stream>>>(out, in, factor, term, count);
  return cudaGetLastError();
}

cudaError_t Accumulate(float* sum, const float* in, int count, cudaStream_t stream) {
  AccumulateKernel<<<Blocks(count), kThreads, 0, stream>>>(sum, in, count);
  return cudaGetLastError();
}

}  // namespace host_cuda::sample
