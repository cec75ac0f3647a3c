// Rows of activations on their way into the products of int8 mode: rotated and rounded (int8_table.h).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/cpu/host_memory.h"
#include "kernels/cpu/int8/int8_table.h"
#include "kernels/cpu/products.h"

namespace sluice::kernels::cpu {

class QuantisedRows final : public ProductRows {
 public:
  static absl::StatusOr<std::unique_ptr<QuantisedRows>> Create(const Int8Table& kernels, int64_t max_rows,
                                                               int64_t max_cols);

  void Use(const Weight& w) override;  // rows are rotated as those of `w` were
  int64_t work_floats() const override { return rotation_->vectors * 16; }
  void Set(int64_t i, float* work) override {
    kernels_.rotate(*rotation_, work);
    scales_[size_t(i)] = kernels_.round(work, rotation_->vectors, bytes() + i * padded_, padded_);
  }

  Int8Rows view(int64_t rows) const { return {bytes(), scales_.data(), rows}; }

 private:
  QuantisedRows(const Int8Table& kernels, int64_t max_rows, int64_t max_cols, HostMemory memory)
      : kernels_(kernels), max_cols_(max_cols), memory_(std::move(memory)), scales_(size_t(max_rows)) {}

  uint8_t* bytes() const { return reinterpret_cast<uint8_t*>(memory_.data()); }

  const Int8Table& kernels_;
  const int64_t max_cols_;
  int64_t padded_ = 0;
  const Rotation* rotation_ = nullptr;
  HostMemory memory_;          // [rows][padded]
  std::vector<float> scales_;  // [rows]
};

}  // namespace sluice::kernels::cpu
