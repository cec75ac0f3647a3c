// A matrix packed for int8 mode: rotated, rounded row by row and laid out in panels (int8_table.h).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/cpu/host_memory.h"
#include "kernels/cpu/int8/int8_table.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/products.h"
#include "kernels/cpu/thread_pool.h"

namespace sluice::kernels::cpu {

constexpr int64_t PadInt8(int64_t k) {
  return (k + kInt8Pad - 1) / kInt8Pad * kInt8Pad;
}

class Int8Weight final : public Weight {
 public:
  // The tensor's bytes are not needed afterwards, nor at all where `memory` is filled. INVALID_ARGUMENT for a tensor
  // that holds nothing or broken blocks, RESOURCE_EXHAUSTED without memory.
  static absl::StatusOr<std::unique_ptr<Int8Weight>> Pack(const HostTensor& tensor, PackedMemory memory,
                                                          const KernelTable& floats, const Int8Table& kernels,
                                                          ThreadPool& pool);

  // The layout of a packed matrix in memory: [panels][padded k / 4][16][4] bytes, then [panels * 16] scales, then
  // [panels * 16] offsets.
  static size_t Bytes(int64_t rows, int64_t cols);

  int64_t panels() const { return PanelsOf(*this); }
  Int8Panels view() const;
  const Rotation& rotation() const { return rotation_; }  // of its rows, and so of what they are multiplied by

 private:
  Int8Weight(int64_t rows, int64_t cols) : Weight(rows, cols), rotation_(PlanRotation(cols)) {}

  void PackPanel(const HostTensor& tensor, const KernelTable& floats, const Int8Table& kernels, int64_t panel,
                 float* row, uint8_t* bytes);

  int8_t* data() const { return reinterpret_cast<int8_t*>(memory_); }
  float* scales() const { return reinterpret_cast<float*>(data() + panels() * kPanelRows * PadInt8(cols())); }
  int32_t* offsets() const { return reinterpret_cast<int32_t*>(scales() + panels() * kPanelRows); }

  const Rotation rotation_;
  HostMemory own_;  // empty where the memory was given
  std::byte* memory_ = nullptr;
};

}  // namespace sluice::kernels::cpu
