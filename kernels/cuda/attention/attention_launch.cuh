// Launches attention for one padded head size. Each size has a file of its own (attention_d64.cu, ...).
#pragma once

#include <algorithm>

#include "kernels/cuda/attention/attention_params.cuh"
#include "kernels/cuda/attention/prefill_kernel.cuh"
#include "kernels/cuda/attention/span_kernel.cuh"

namespace sluice::kernels::cuda {

// What a launch needs besides the parameters.
struct AttentionLaunch {
  AttentionParams params;
  AttentionCapacity capacity;
  int kv_heads;
  KvWay way;
};

// kAligned: head_dim = kDim. kAlignedInt8: the same, 64 or 128. kAny: head_dim <= kDim, which is 64, 128 or 256.
template <int kDim>
cudaError_t LaunchAttention(const AttentionLaunch& launch, cudaStream_t stream);

namespace internal {

// Blocks in all; the rest of the items waits for them.
inline constexpr int kMaxBlocks = 8192;

inline unsigned GridX(int blocks, int y) {
  return unsigned(std::clamp(kMaxBlocks / y, 1, std::max(blocks, 1)));
}

template <typename Kernel>
cudaError_t Launch(Kernel kernel, int blocks, int y, int threads, size_t shared, const AttentionParams& params,
                   cudaStream_t stream) {
  if (blocks == 0) return cudaSuccess;
  if (shared > 48 * 1024) {
    const cudaError_t allowed = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(shared));
    if (allowed != cudaSuccess) return allowed;
  }
  kernel<<<dim3(GridX(blocks, y), unsigned(y)), unsigned(threads), shared, stream>>>(params);
  return cudaGetLastError();
}

template <int kDim, KvWay kWay>
cudaError_t LaunchWay(const AttentionLaunch& l, cudaStream_t stream) {
  const AttentionParams& p = l.params;
  const int y = l.kv_heads * p.chunks;
  cudaError_t error = Launch(SpanKernel<kDim, kWay>, (l.capacity.spans + kSpanWarps - 1) / kSpanWarps, y,
                             kSpanWarps * 32, sizeof(SpanShared<kDim, kWay>), p, stream);
  if (error == cudaSuccess) {
    error = Launch(MergeKernel<kDim, kWay>, l.capacity.merges, (p.heads + kMergeWarps - 1) / kMergeWarps,
                   kMergeWarps * 32, 0, p, stream);
  }
  if (error == cudaSuccess) {
    error = Launch(PrefillKernel<kDim, kWay>, l.capacity.prefills, y, kPrefillWarps * 32,
                   sizeof(PrefillShared<kDim, kWay>), p, stream);
  }
  return error;
}

}  // namespace internal

template <int kDim>
cudaError_t LaunchAttention(const AttentionLaunch& launch, cudaStream_t stream) {
  if (launch.way == KvWay::kAligned) return internal::LaunchWay<kDim, KvWay::kAligned>(launch, stream);
  if constexpr (kDim == 64 || kDim == 128) {
    if (launch.way == KvWay::kAlignedInt8) return internal::LaunchWay<kDim, KvWay::kAlignedInt8>(launch, stream);
  }
  if constexpr (kDim % 64 == 0) return internal::LaunchWay<kDim, KvWay::kAny>(launch, stream);
  return cudaErrorInvalidValue;
}

}  // namespace sluice::kernels::cuda
