// The KV blocks of a GPU, and moving parts of them between it and the host.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <mutex>
#include <string>

#include "kernels/backend.h"
#include "kernels/cuda/backend/device.h"
#include "kernels/cuda/backend/memory.h"
#include "kernels/cuda/transfer/device_links.h"

namespace sluice::kernels::cuda {

// Layers lie one after the other.
class CudaKvPool final : public KvPool, private DeviceKv {
 public:
  // `device` outlives the pool. nccl: as NcclLibrary::Load's, for its links.
  static absl::StatusOr<std::unique_ptr<CudaKvPool>> Create(const KvLayout& layout, int num_blocks,
                                                            const Device& device, const std::string& nccl = "");
  ~CudaKvPool() override;

  void* layer_data(int layer) override { return At(layer); }
  const void* layer(int layer) const { return At(layer); }
  absl::Status CopyBlock(int from, int to) override;
  DeviceKv* device() override { return this; }

 private:
  // What a slice passes through; it grows to the largest slice that there was.
  struct Staging {
    size_t bytes = 0, blocks = 0;
    DeviceMemory run, ids, sum;
    PinnedMemory host_run, host_ids, host_sum;
  };

  CudaKvPool(const KvLayout& layout, int num_blocks, DeviceMemory memory, const Device& gpu, const std::string& nccl)
      : KvPool(layout, num_blocks), memory_(std::move(memory)), gpu_(gpu), links_(gpu, nccl) {}
  absl::StatusOr<uint64_t> Gather(const KvSlice& slice, std::span<std::byte> out) override;
  absl::StatusOr<uint64_t> Scatter(const KvSlice& slice, std::span<const std::byte> in) override;
  absl::StatusOr<uint64_t> GatherOnDevice(const KvSlice& slice, std::span<std::byte> out) override;
  absl::StatusOr<uint64_t> ScatterOnDevice(const KvSlice& slice, std::span<const std::byte> in) override;
  DeviceLinks* links() override { return &links_; }

  absl::Status Reserve(size_t bytes, size_t blocks);
  // Copies on stream_ between the pool and the run, which is device memory.
  cudaError_t Move(const KvSlice& slice, void* run, bool gather);
  absl::StatusOr<uint64_t> MoveOnDevice(const KvSlice& slice, void* run, size_t bytes, bool gather);
  absl::StatusOr<uint64_t> Await(cudaError_t error, size_t bytes, const char* doing);

  size_t layer_bytes() const { return size_t(num_blocks()) * layout().block_bytes(); }
  std::byte* At(int layer) const { return static_cast<std::byte*>(memory_.get()) + size_t(layer) * layer_bytes(); }

  DeviceMemory memory_;
  const Device& gpu_;
  std::mutex moving_;              // one slice at a time
  cudaStream_t stream_ = nullptr;  // beside the steps
  Staging staging_;
  CudaDeviceLinks links_;
};

}  // namespace sluice::kernels::cuda
