// out = x / sqrt(mean(x^2) + eps) * weight, row by row; for all rows, or for chosen ones.
//
// A row's result depends on the row alone: one block a row, its sum in one fixed tree for each width.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

namespace sluice::kernels::cuda {

struct RmsNormArgs {
  const float* x = nullptr;         // [...][x_stride], 16-byte aligned; zeros behind width
  int64_t x_stride = 0;             // a multiple of 4
  const float* weight = nullptr;    // [width], zeros behind it as far as x has them
  const int32_t* chosen = nullptr;  // [rows]: out[i] is of x[chosen[i]]; null: of x[i]
  __nv_bfloat16* out = nullptr;     // [rows][out_stride], zeros behind width
  int64_t out_stride = 0;           // a multiple of 4
  int rows = 0;
  int width = 0;  // at most 32768
  float eps = 1e-5f;
};

// cudaErrorInvalidValue for a shape that is not supported. No rows: nothing is launched.
cudaError_t RmsNorm(const RmsNormArgs& args, cudaStream_t stream);

}  // namespace sluice::kernels::cuda
