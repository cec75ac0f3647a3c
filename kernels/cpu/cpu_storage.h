// What the CPU backend keeps behind the opaque handles of kernels/backend.h: weights, activations and the KV pool.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/cpu/host_memory.h"
#include "kernels/cpu/kernel_table.h"

namespace sluice::kernels::cpu {

constexpr int64_t PadRow(int64_t cols) {
  return (cols + kRowPad - 1) / kRowPad * kRowPad;
}

// Matrices are read in place. Vectors (one row) are converted to f32 when packed.
class CpuWeight final : public Weight {
 public:
  static absl::StatusOr<std::unique_ptr<CpuWeight>> Pack(const HostTensor& tensor);

  DType type() const { return tensor_.type; }
  int64_t row_bytes() const { return row_bytes_; }
  const uint8_t* row(int64_t i) const { return static_cast<const uint8_t*>(tensor_.data) + i * row_bytes_; }

  // [cols]; of a vector, or of row i of an f32 matrix. CHECKs that it is one of these.
  const float* f32_row(int64_t i) const;

 private:
  explicit CpuWeight(const HostTensor& tensor);

  HostTensor tensor_;
  int64_t row_bytes_;
  std::vector<float> vector_;  // [cols] when rows() == 1
};

// [max_rows][ld], f32; past cols every row is zero and stays so.
class CpuActivation final : public Activation {
 public:
  static absl::StatusOr<std::unique_ptr<CpuActivation>> Create(int max_rows, int cols);

  int64_t ld() const { return PadRow(cols()); }
  float* row(int64_t i) const { return memory_.floats() + i * ld(); }

 private:
  CpuActivation(int cols, HostMemory memory) : Activation(cols), memory_(std::move(memory)) {}

  HostMemory memory_;
};

// Scratch rows of any width up to the one asked for.
class ScratchRows {
 public:
  static absl::StatusOr<ScratchRows> Create(int max_rows, int max_cols);

  // Takes `rows` rows of `cols`; zeroes what lies past cols.
  void Use(int64_t rows, int64_t cols);

  int64_t cols() const { return cols_; }
  int64_t ld() const { return PadRow(cols_); }
  float* row(int64_t i) const { return memory_.floats() + i * ld(); }

 private:
  int64_t max_cols_ = 0, cols_ = 0;
  HostMemory memory_;
};

// All layers in one lazily resident mapping.
class CpuKvPool final : public KvPool {
 public:
  // `stored` is what the backend's mode reads: INVALID_ARGUMENT for a layout of another type.
  // `memory`, if given, is of CpuKvPoolBytes() and zero at first.
  static absl::StatusOr<std::unique_ptr<CpuKvPool>> Create(const KvLayout& layout, int num_blocks, KvDType stored,
                                                           std::byte* memory);

  void* layer_data(int layer) override { return data_ + size_t(layer) * layer_stride_; }
  const std::byte* layer_bytes(int layer) const { return data_ + size_t(layer) * layer_stride_; }
  const float* layer_floats(int layer) const { return reinterpret_cast<const float*>(layer_bytes(layer)); }
  absl::Status CopyBlock(int from, int to) override;

 private:
  CpuKvPool(const KvLayout& layout, int num_blocks, std::byte* data, HostMemory own);

  const size_t layer_stride_;
  const HostMemory own_;  // empty where the memory was given
  std::byte* const data_;
};

}  // namespace sluice::kernels::cpu
