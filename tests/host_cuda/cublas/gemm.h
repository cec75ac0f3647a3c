// D = epilogue(alpha * op(A) * op(B) + beta * C), as loops that the compiler turns into vector code: products and sums
// in f32, over k in order, rounded once when stored; of int8 in int32, exactly. So the bits are the same on every
// machine; of floating-point types they are not those of a GPU.
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

enum class Activation { kNone, kRelu, kGelu };  // kGelu: its tanh form

// alpha or beta: given by value or, if on_device is set, read there when the product runs. In int8 products both are
// int32.
struct Scalar {
  float value = 0;
  int32_t whole = 0;
  const void* on_device = nullptr;
};

struct Gemm {
  int64_t m = 0, n = 0, k = 0, batches = 1;
  Matrix a, b, c, d;  // [m, k], [k, n], [m, n], [m, n]; d is written
  Scalar alpha, beta;
  const float* a_scale = nullptr;  // on the device: factors of A and of B; nullptr: 1
  const float* b_scale = nullptr;
  const void* bias = nullptr;  // [m], added to every column
  cudaDataType bias_type = CUDA_R_32F;
  Activation activation = Activation::kNone;
  void* workspace = nullptr;  // is written over
  size_t workspace_bytes = 0;
};

size_t SizeOf(cudaDataType type);  // of an element; 0: not a type that is known here

// f32, f16, bf16: what both inputs and outputs may be.
bool Known(cudaDataType type);

// Empty: done. Else what of its memory may not be used.
std::string Run(const Gemm& gemm);

// In stream order.
cudaError_t EnqueueGemm(cudaStream_t stream, const char* name, const Gemm& gemm);

}  // namespace host_cuda::blas
