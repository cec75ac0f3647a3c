// Rows of activations on their way into the products of int8 mode: rotated and rounded (int8_table.h).
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/cpu/host_memory.h"
#include "kernels/cpu/int8/int8_table.h"
#include "kernels/cpu/int8/int8_weight.h"

namespace sluice::kernels::cpu {

class QuantisedRows {
 public:
  // Room for `max_rows` rows of up to `max_cols` columns.
  static absl::StatusOr<QuantisedRows> Create(int64_t max_rows, int64_t max_cols);

  // From now on rows that are multiplied by `w`, or by others of its width: they are rotated as its rows were. `w` must
  // outlive their use.
  void Use(const Int8Weight& w);

  // Row i from work [rotation.vectors][16], zero past cols, which is overwritten.
  void Set(const Int8Table& kernels, int64_t i, float* work) {
    kernels.rotate(*rotation_, work);
    scales_[size_t(i)] = kernels.round(work, rotation_->vectors, bytes() + i * padded_, padded_);
  }

  int64_t work_floats() const { return rotation_->vectors * 16; }
  Int8Rows view(int64_t rows) const { return {bytes(), scales_.data(), rows}; }

 private:
  uint8_t* bytes() const { return reinterpret_cast<uint8_t*>(memory_.data()); }

  int64_t max_cols_ = 0, padded_ = 0;
  const Rotation* rotation_ = nullptr;
  HostMemory memory_;          // [rows][padded]
  std::vector<float> scales_;  // [rows]
};

}  // namespace sluice::kernels::cpu
