// Gathers a part of a paged pool into one run of bytes in the order of kernels::KvSlice, or scatters such a run, with
// the checksum of kv_checksum.h on the way.
//
// Limits: layers at equal distances.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace sluice::kernels::cuda {

struct KvCopyArgs {
  unsigned char* pool = nullptr;  // of the first layer of the part
  size_t layer_bytes = 0;         // from a layer to the next
  size_t block_bytes = 0, plane_bytes = 0;
  size_t first_byte = 0;            // in a plane: of the first head of the part
  size_t run_bytes = 0;             // heads of the part
  const int32_t* blocks = nullptr;  // [num_blocks]
  int num_blocks = 0, layers = 0;
  unsigned char* run = nullptr;  // [layers][num_blocks][K|V][run_bytes], 16-byte aligned
  uint64_t* checksum = nullptr;  // is added to; without what the length adds
};

// Pool to run, and run to pool.
cudaError_t GatherKv(const KvCopyArgs& args, cudaStream_t stream);
cudaError_t ScatterKv(const KvCopyArgs& args, cudaStream_t stream);

}  // namespace sluice::kernels::cuda
