// x += delta;  out = x / sqrt(mean(x^2) + eps) * weight, row by row.
//
// A row's result depends on the row alone: one block a row, its sum in one fixed tree for each width.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

namespace sluice::kernels::cuda {

struct RmsNormArgs {
  float* x = nullptr;                     // in/out [rows][width]; 16-byte aligned
  const __nv_bfloat16* delta = nullptr;   // [rows][width], added to x first; null: nothing is
  const __nv_bfloat16* weight = nullptr;  // [width]
  __nv_bfloat16* out = nullptr;           // [rows][width]
  int rows = 0;
  int width = 0;  // a multiple of 4, at most 32768
  float eps = 1e-5f;
};

// cudaErrorInvalidValue for a width that is not supported. No rows: nothing is launched.
cudaError_t RmsNorm(const RmsNormArgs& args, cudaStream_t stream);

}  // namespace sluice::kernels::cuda
