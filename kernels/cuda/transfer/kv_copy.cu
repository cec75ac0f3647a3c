#include <algorithm>

#include "kernels/cuda/transfer/kv_copy.h"
#include "kernels/cuda/warp.cuh"
#include "kernels/kv_checksum.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kMostBlocks = 1024;

__device__ unsigned char* InPool(const KvCopyArgs& a, size_t at) {
  const size_t plane = at / a.run_bytes, block = plane / 2;
  const size_t layer = block / a.num_blocks, index = block % a.num_blocks;
  return a.pool + layer * a.layer_bytes + size_t(a.blocks[index]) * a.block_bytes + plane % 2 * a.plane_bytes +
         a.first_byte + at % a.run_bytes;
}

__device__ void AddToChecksum(const KvCopyArgs& a, uint64_t sum) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(kAllLanes, sum, distance);
  if (threadIdx.x % 32 == 0) atomicAdd(reinterpret_cast<unsigned long long*>(a.checksum), sum);
}

// 16 bytes a thread at a time: all sizes and addresses are multiples of that.
template <bool kGather>
__global__ void __launch_bounds__(kThreads) CopyVectors(const KvCopyArgs a, size_t bytes) {
  uint64_t sum = 0;
  for (size_t at = (size_t(blockIdx.x) * kThreads + threadIdx.x) * 16; at < bytes;
       at += size_t(gridDim.x) * kThreads * 16) {
    ulonglong2* const in_run = reinterpret_cast<ulonglong2*>(a.run + at);
    ulonglong2* const in_pool = reinterpret_cast<ulonglong2*>(InPool(a, at));
    const ulonglong2 words = kGather ? *in_pool : *in_run;
    *(kGather ? in_run : in_pool) = words;
    sum += Mix(words.x, at / 8) + Mix(words.y, at / 8 + 1);
  }
  AddToChecksum(a, sum);
}

// A word a thread at a time, byte by byte: words may cross the borders of what is contiguous in the pool.
template <bool kGather>
__global__ void __launch_bounds__(kThreads) CopyBytes(const KvCopyArgs a, size_t bytes) {
  uint64_t sum = 0;
  for (size_t at = (size_t(blockIdx.x) * kThreads + threadIdx.x) * 8; at < bytes;
       at += size_t(gridDim.x) * kThreads * 8) {
    uint64_t word = 0;
    for (int i = 0; i < 8 && at + i < bytes; ++i) {
      unsigned char* const in_run = a.run + at + i;
      unsigned char* const in_pool = InPool(a, at + i);
      const unsigned char byte = kGather ? *in_pool : *in_run;
      *(kGather ? in_run : in_pool) = byte;
      word |= uint64_t(byte) << (8 * i);
    }
    sum += Mix(word, at / 8);
  }
  AddToChecksum(a, sum);
}

template <bool kGather>
cudaError_t Copy(const KvCopyArgs& a, cudaStream_t stream) {
  const size_t bytes = size_t(a.layers) * a.num_blocks * 2 * a.run_bytes;
  if (bytes == 0) return cudaErrorInvalidValue;
  const bool vectors = (a.layer_bytes | a.block_bytes | a.plane_bytes | a.first_byte | a.run_bytes |
                        reinterpret_cast<size_t>(a.pool) | reinterpret_cast<size_t>(a.run)) %
                           16 ==
                       0;
  const size_t each = kThreads * (vectors ? 16 : 8);
  const unsigned blocks = unsigned(std::min<size_t>((bytes + each - 1) / each, kMostBlocks));
  if (vectors) {
    CopyVectors<kGather><<<blocks, kThreads, 0, stream>>>(a, bytes);
  } else {
    CopyBytes<kGather><<<blocks, kThreads, 0, stream>>>(a, bytes);
  }
  return cudaGetLastError();
}

}  // namespace

cudaError_t GatherKv(const KvCopyArgs& args, cudaStream_t stream) {
  return Copy<true>(args, stream);
}
cudaError_t ScatterKv(const KvCopyArgs& args, cudaStream_t stream) {
  return Copy<false>(args, stream);
}

}  // namespace sluice::kernels::cuda
