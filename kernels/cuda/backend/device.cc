#include "kernels/cuda/backend/device.h"

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/backend/errors.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int kLeastMajor = 8;  // cp.async, mma of bf16

absl::Status CheckArchitecture(int index) {
  cudaDeviceProp properties;
  if (auto status = ToStatus(cudaGetDeviceProperties(&properties, index), absl::StrCat("GPU ", index)); !status.ok()) {
    return status;
  }
  if (properties.major >= kLeastMajor) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("GPU ", index, " (", properties.name, ") has compute capability ",
                                                    properties.major, ".", properties.minor, ": 8.0 is the least"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> Device::Open(int index) {
  // Read by the driver at its first use. A stream that shares its hardware queue with another's waiting NCCL receive
  // waits with it; the default is 8 queues.
  (void)setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", /*overwrite=*/0);
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess) {
    return ToStatus(error, "no usable GPU");
  }
  if (index < 0 || index >= count) {
    return absl::FailedPreconditionError(absl::StrCat("there is no GPU ", index, ": this machine shows ", count));
  }
  if (auto status = CheckArchitecture(index); !status.ok()) return status;
  std::unique_ptr<Device> device(new Device(index));
  if (auto status = device->MakeCurrent(); !status.ok()) return status;
  const cudaError_t error = cudaStreamCreateWithFlags(&device->stream_, cudaStreamNonBlocking);
  if (auto status = ToStatus(error, absl::StrCat("GPU ", index, ": a stream")); !status.ok()) return status;
  return device;
}

Device::~Device() {
  if (stream_ == nullptr) return;
  (void)cudaStreamSynchronize(stream_);
  (void)cudaStreamDestroy(stream_);
}

absl::Status Device::MakeCurrent() const {
  return ToStatus(cudaSetDevice(index_), absl::StrCat("GPU ", index_));
}

}  // namespace sluice::kernels::cuda
