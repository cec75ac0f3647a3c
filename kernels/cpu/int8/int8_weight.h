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
#include "kernels/cpu/thread_pool.h"

namespace sluice::kernels::cpu {

constexpr int64_t PadInt8(int64_t k) {
  return (k + kInt8Pad - 1) / kInt8Pad * kInt8Pad;
}

class Int8Weight final : public Weight {
 public:
  // The tensor's bytes are not needed afterwards. INVALID_ARGUMENT for a tensor that holds nothing or broken blocks,
  // RESOURCE_EXHAUSTED without memory.
  static absl::StatusOr<std::unique_ptr<Int8Weight>> Pack(const HostTensor& tensor, const KernelTable& floats,
                                                          const Int8Table& kernels, ThreadPool& pool);

  int64_t panels() const { return (rows() + kPanelRows - 1) / kPanelRows; }
  Int8Panels view() const;

 private:
  Int8Weight(int64_t rows, int64_t cols) : Weight(rows, cols) {}

  void PackPanel(const HostTensor& tensor, const KernelTable& floats, const Int8Table& kernels,
                 const Rotation& rotation, int64_t panel, float* row, uint8_t* bytes);

  HostMemory data_;               // [panels][padded k / 4][16][4]
  std::vector<float> scales_;     // [panels * 16]
  std::vector<int32_t> offsets_;  // [panels * 16]
};

}  // namespace sluice::kernels::cpu
