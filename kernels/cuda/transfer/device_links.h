// The links of a GPU (kernels/device_links.h) to those of other processes: by CUDA-IPC and NCCL.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "kernels/cuda/backend/device.h"
#include "kernels/cuda/nccl/nccl_library.h"
#include "kernels/device_links.h"

namespace sluice::kernels::cuda {

class CudaDeviceLinks final : public DeviceLinks {
 public:
  // gpu: outlives this and all that comes from it. nccl: as NcclLibrary::Load's.
  CudaDeviceLinks(const Device& gpu, std::string nccl) : gpu_(gpu), nccl_(std::move(nccl)) {}
  ~CudaDeviceLinks() override;

  std::string device_id() const override;
  absl::Status Read(std::span<const std::byte> device, std::span<std::byte> host) override;
  absl::Status Write(std::span<const std::byte> host, std::span<std::byte> device) override;
  absl::StatusOr<std::unique_ptr<DeviceBuffer>> NewShared(size_t bytes) override;
  absl::StatusOr<std::unique_ptr<DeviceBuffer>> OpenShared(std::string_view handle) override;
  absl::Status pipes() override { return NcclLibrary::Load(nccl_).status(); }
  absl::StatusOr<std::string> NewPipeId() override;
  absl::StatusOr<std::unique_ptr<DevicePipe>> NewPipe(DevicePipeOptions options) override;

 private:
  absl::Status Copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind);

  const Device& gpu_;
  const std::string nccl_;
  std::mutex copying_;             // one copy at a time
  cudaStream_t stream_ = nullptr;  // of the copies; made with the first
};

}  // namespace sluice::kernels::cuda
