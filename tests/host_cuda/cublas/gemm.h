// D = alpha * op(A) * op(B) + beta * C, as loops that the compiler turns into vector code: one product in f32, the sum
// over k in order, rounded once when stored. So the bits are the same on every machine; they are not those of a GPU.
#pragma once

#include <cuda_runtime_api.h>
#include <library_types.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace host_cuda::blas {

// A matrix as a product sees it: element (r, c) lies at r * row_step + c * column_step.
struct Matrix {
  const void* data = nullptr;
  cudaDataType type = CUDA_R_32F;
  int64_t row_step = 1, column_step = 0, batch_step = 0;  // in elements
};

struct Gemm {
  int64_t m = 0, n = 0, k = 0, batches = 1;
  Matrix a, b, c, d;  // [m, k], [k, n], [m, n], [m, n]; d is written
  float alpha = 1, beta = 0;
  const float* alpha_on_device = nullptr;  // instead, read when it runs
  const float* beta_on_device = nullptr;
  const void* bias = nullptr;  // [m], added to every column
  cudaDataType bias_type = CUDA_R_32F;
  bool relu = false;
};

// f32, f16, bf16.
bool Known(cudaDataType type);

// Empty: done. Else what of its memory may not be used.
std::string Run(const Gemm& gemm);

// In stream order.
cudaError_t EnqueueGemm(cudaStream_t stream, const char* name, const Gemm& gemm);

}  // namespace host_cuda::blas
