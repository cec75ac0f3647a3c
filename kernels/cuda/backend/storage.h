// What the CUDA backend keeps in device memory: weights and rows of activations. KV: kv_pool.h.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/backend.h"
#include "kernels/cuda/backend/memory.h"

namespace sluice::kernels::cuda {

// Rows are padded with zeros to a multiple of this many elements: the depth of a step of a product.
inline constexpr int64_t kRowUnit = 64;
constexpr int64_t PaddedRow(int64_t cols) {
  return (cols + kRowUnit - 1) / kRowUnit * kRowUnit;
}

// [rows][stride], zeros behind cols; f32 or bf16.
class CudaWeight final : public Weight {
 public:
  CudaWeight(int64_t rows, int64_t cols, bool f32, DeviceMemory memory)
      : Weight(rows, cols), f32_(f32), memory_(std::move(memory)) {}

  int64_t stride() const { return PaddedRow(cols()); }
  bool is_f32() const { return f32_; }
  const float* f32() const { return static_cast<const float*>(memory_.get()); }
  const __nv_bfloat16* bf16() const { return static_cast<const __nv_bfloat16*>(memory_.get()); }

 private:
  bool f32_;
  DeviceMemory memory_;
};

// [max_rows][stride], zeros behind cols. The residual stream is f32, everything else bf16.
class CudaActivation final : public Activation {
 public:
  CudaActivation(int cols, bool f32, DeviceMemory memory) : Activation(cols), f32_(f32), memory_(std::move(memory)) {}

  int64_t stride() const { return PaddedRow(cols()); }
  bool is_f32() const { return f32_; }
  float* f32() const { return static_cast<float*>(memory_.get()); }
  __nv_bfloat16* bf16() const { return static_cast<__nv_bfloat16*>(memory_.get()); }

 private:
  bool f32_;
  DeviceMemory memory_;
};

}  // namespace sluice::kernels::cuda
