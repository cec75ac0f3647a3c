// C = A Wᵀ in bf16 with f32 sums: the linear layer of small and odd shapes. Large ones are cuBLASLt's.
//
// A row of C depends on its row of A alone: tiles of 64 x 64, the whole of k in one order in every tile.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

namespace sluice::kernels::cuda {

struct GemmArgs {
  const __nv_bfloat16* a = nullptr;  // [m][k], 16-byte aligned
  const __nv_bfloat16* w = nullptr;  // [n][k], 16-byte aligned
  float* c = nullptr;                // [m][n]
  int m = 0, n = 0;
  int k = 0;  // a multiple of 8
};

// cudaErrorInvalidValue for a shape that is not supported. No rows: nothing is launched.
cudaError_t Gemm(const GemmArgs& args, cudaStream_t stream);

}  // namespace sluice::kernels::cuda
