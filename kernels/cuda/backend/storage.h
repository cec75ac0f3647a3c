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

enum class Kept : uint8_t { kF32, kBf16, kInt8 };

// [rows][stride], zeros behind cols; in int8 as gemm/int8_layout.h says.
class CudaWeight final : public Weight {
 public:
  CudaWeight(int64_t rows, int64_t cols, Kept kept, DeviceMemory memory)
      : Weight(rows, cols), kept_(kept), data_(memory.get()), memory_(std::move(memory)) {}
  // Of another's memory, which outlives it.
  CudaWeight(int64_t rows, int64_t cols, Kept kept, const void* data) : Weight(rows, cols), kept_(kept), data_(data) {}

  int64_t stride() const { return PaddedRow(cols()); }
  bool is_f32() const { return kept_ == Kept::kF32; }
  // Null where it is kept otherwise.
  const float* f32() const { return static_cast<const float*>(If(Kept::kF32)); }
  const __nv_bfloat16* bf16() const { return static_cast<const __nv_bfloat16*>(If(Kept::kBf16)); }
  const void* int8() const { return If(Kept::kInt8); }

 private:
  const void* If(Kept kept) const { return kept_ == kept ? data_ : nullptr; }

  Kept kept_;
  const void* data_;
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
