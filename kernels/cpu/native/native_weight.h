// A matrix packed for native mode: the blocks of the file, laid out in panels (native_table.h).
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/cpu/host_memory.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/native/native_table.h"
#include "kernels/cpu/thread_pool.h"

namespace sluice::kernels::cpu {

// How a type of the file is kept.
BlockForm FormOf(DType type);

constexpr int64_t NativeBlocks(int64_t cols) {
  return (cols + kNativeBlock - 1) / kNativeBlock;
}

class NativeWeight final : public Weight {
 public:
  // As Int8Weight::Pack.
  static absl::StatusOr<std::unique_ptr<NativeWeight>> Pack(const HostTensor& tensor, PackedMemory memory,
                                                            const KernelTable& floats, ThreadPool& pool);

  // [panels][blocks] codes, then [panels][blocks] scales.
  static size_t Bytes(const HostTensor& tensor);

  NativePanels view() const;

 private:
  NativeWeight(const HostTensor& tensor) : Weight(tensor.rows, tensor.cols), form_(FormOf(tensor.type)) {}

  void PackPanel(const HostTensor& tensor, const KernelTable& floats, int64_t panel, float* row);

  const BlockForm form_;
  HostMemory own_;  // empty where the memory was given
  uint8_t* memory_ = nullptr;
};

}  // namespace sluice::kernels::cpu
