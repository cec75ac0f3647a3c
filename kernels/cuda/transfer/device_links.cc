#include "kernels/cuda/transfer/device_links.h"

#include "absl/strings/escaping.h"
#include "kernels/cuda/backend/errors.h"
#include "kernels/cuda/nccl/communicator.h"
#include "kernels/cuda/nccl/nccl_library.h"
#include "kernels/cuda/transfer/nccl_pipe.h"
#include "kernels/cuda/transfer/shared_memory.h"

namespace sluice::kernels::cuda {

CudaDeviceLinks::~CudaDeviceLinks() {
  if (stream_ != nullptr) (void)cudaStreamDestroy(stream_);
}

absl::Status CudaDeviceLinks::Copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  const std::lock_guard lock(copying_);
  if (absl::Status status = gpu_.MakeCurrent(); !status.ok()) return status;
  cudaError_t error = stream_ != nullptr ? cudaSuccess : cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking);
  if (error == cudaSuccess && bytes > 0) error = cudaMemcpyAsync(to, from, bytes, kind, stream_);
  if (error == cudaSuccess) error = cudaStreamSynchronize(stream_);
  return ToStatus(error, "between the memory of GPU and host");
}

absl::Status CudaDeviceLinks::Read(std::span<const std::byte> device, std::span<std::byte> host) {
  return Copy(host.data(), device.data(), device.size(), cudaMemcpyDeviceToHost);
}

absl::Status CudaDeviceLinks::Write(std::span<const std::byte> host, std::span<std::byte> device) {
  return Copy(device.data(), host.data(), host.size(), cudaMemcpyHostToDevice);
}

absl::StatusOr<std::unique_ptr<DeviceBuffer>> CudaDeviceLinks::NewShared(size_t bytes) {
  return NewSharedMemory(gpu_, bytes);
}

absl::StatusOr<std::unique_ptr<DeviceBuffer>> CudaDeviceLinks::OpenShared(std::string_view handle) {
  return OpenSharedMemory(gpu_, handle);
}

std::string CudaDeviceLinks::device_id() const {
  cudaDeviceProp properties;
  if (cudaGetDeviceProperties(&properties, gpu_.index()) != cudaSuccess) return "";
  return absl::BytesToHexString(absl::string_view(properties.uuid.bytes, sizeof(properties.uuid.bytes)));
}

absl::StatusOr<std::string> CudaDeviceLinks::NewPipeId() {
  const auto nccl = NcclLibrary::Load(nccl_);
  if (!nccl.ok()) return nccl.status();
  const auto id = NewNcclId(**nccl);
  if (!id.ok()) return id.status();
  return std::string(id->internal, sizeof(id->internal));
}

absl::StatusOr<std::unique_ptr<DevicePipe>> CudaDeviceLinks::NewPipe(DevicePipeOptions options) {
  const auto nccl = NcclLibrary::Load(nccl_);
  if (!nccl.ok()) return nccl.status();
  return NewNcclPipe(gpu_, **nccl, std::move(options));
}

}  // namespace sluice::kernels::cuda
