#include "kernels/cuda/backend/errors.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace sluice::kernels::cuda {
namespace {

absl::StatusCode CodeOf(cudaError_t error) {
  switch (error) {
    case cudaErrorMemoryAllocation:
      return absl::StatusCode::kResourceExhausted;
    case cudaErrorNoDevice:
    case cudaErrorInvalidDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorCompatNotSupportedOnDevice:
    case cudaErrorDevicesUnavailable:
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorUnsupportedPtxVersion:
      return absl::StatusCode::kFailedPrecondition;
    default:
      return absl::StatusCode::kInternal;
  }
}

std::string_view Advice(cudaError_t error) {
  switch (error) {
    case cudaErrorInsufficientDriver:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorUnsupportedPtxVersion:
      return "; install a newer NVIDIA driver (see `nvidia-smi`)";
    case cudaErrorNoKernelImageForDevice:
      return "; this build has code for other GPUs (sm_80, sm_90a, sm_100a)";
    case cudaErrorDevicesUnavailable:
      return "; another process may hold it exclusively (see `nvidia-smi`)";
    case cudaErrorECCUncorrectable:
      return "; the GPU's memory has failed, see `nvidia-smi -q -d ECC`";
    default:
      return "";
  }
}

}  // namespace

absl::Status ToStatus(cudaError_t error, std::string_view doing) {
  if (error == cudaSuccess) return absl::OkStatus();
  // It is told now. What stays as the thread's last error would be taken for that of its next launch.
  (void)cudaGetLastError();
  return absl::Status(CodeOf(error), absl::StrCat(std::string(doing), ": ", cudaGetErrorName(error), " (",
                                                  cudaGetErrorString(error), ")", std::string(Advice(error))));
}

}  // namespace sluice::kernels::cuda
