// A matrix packed for bf16 mode: rounded and laid out in panels (bf16_table.h).
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/cpu/bf16/bf16_table.h"
#include "kernels/cpu/host_memory.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/thread_pool.h"

namespace sluice::kernels::cpu {

constexpr int64_t PadBf16(int64_t k) {
  return (k + 1) / 2 * 2;
}

class Bf16Weight final : public Weight {
 public:
  // As Int8Weight::Pack.
  static absl::StatusOr<std::unique_ptr<Bf16Weight>> Pack(const HostTensor& tensor, PackedMemory memory,
                                                          const KernelTable& floats, ThreadPool& pool);

  static size_t Bytes(int64_t rows, int64_t cols);

  Bf16Panels view() const { return {.data = memory_, .k = PadBf16(cols()), .rows = rows()}; }

 private:
  Bf16Weight(int64_t rows, int64_t cols) : Weight(rows, cols) {}

  void PackPanel(const HostTensor& tensor, const KernelTable& floats, int64_t panel, float* row);

  HostMemory own_;  // empty where the memory was given
  uint16_t* memory_ = nullptr;
};

}  // namespace sluice::kernels::cpu
