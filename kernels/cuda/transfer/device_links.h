// The links of a GPU (kernels/device_links.h) to those of other processes of this host: by CUDA-IPC.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>

#include "kernels/cuda/backend/device.h"
#include "kernels/device_links.h"

namespace sluice::kernels::cuda {

class CudaDeviceLinks final : public DeviceLinks {
 public:
  explicit CudaDeviceLinks(const Device& gpu) : gpu_(gpu) {}  // which outlives this and all that comes from it
  ~CudaDeviceLinks() override;

  absl::Status Read(std::span<const std::byte> device, std::span<std::byte> host) override;
  absl::Status Write(std::span<const std::byte> host, std::span<std::byte> device) override;
  absl::StatusOr<std::unique_ptr<DeviceBuffer>> NewShared(size_t bytes) override;
  absl::StatusOr<std::unique_ptr<DeviceBuffer>> OpenShared(std::string_view handle) override;

 private:
  absl::Status Copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind);

  const Device& gpu_;
  std::mutex copying_;             // one copy at a time
  cudaStream_t stream_ = nullptr;  // of the copies; made with the first
};

}  // namespace sluice::kernels::cuda
