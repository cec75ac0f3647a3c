#include "kernels/cuda/backend/memory.h"

#include <cuda_runtime_api.h>

#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/backend/errors.h"

namespace sluice::kernels::cuda {

void FreeDevice::operator()(void* memory) const {
  (void)cudaFree(memory);  // fails only after an error that was reported already
}

void FreePinned::operator()(void* memory) const {
  (void)cudaFreeHost(memory);
}

absl::StatusOr<DeviceMemory> NewDeviceMemory(size_t bytes, std::string_view what) {
  if (bytes == 0) return DeviceMemory();
  void* memory = nullptr;
  if (const cudaError_t error = cudaMalloc(&memory, bytes); error != cudaSuccess) {
    (void)cudaGetLastError();  // not the next launch's
    size_t free = 0, total = 0;
    std::string room;
    if (cudaMemGetInfo(&free, &total) == cudaSuccess) room = absl::StrCat(", ", free, " of ", total, " are free");
    return ToStatus(error, absl::StrCat(std::string(what), ": cannot have ", bytes, " bytes of GPU memory", room));
  }
  DeviceMemory owned(memory);
  // Neither call waits for it, nor do streams that don't block for the default one.
  cudaError_t error = cudaMemsetAsync(memory, 0, bytes, cudaStreamPerThread);
  if (error == cudaSuccess) error = cudaStreamSynchronize(cudaStreamPerThread);
  if (auto status = ToStatus(error, what); !status.ok()) return status;
  return owned;
}

absl::StatusOr<PinnedMemory> NewPinnedMemory(size_t bytes, std::string_view what) {
  if (bytes == 0) return PinnedMemory();
  void* memory = nullptr;
  if (const cudaError_t error = cudaMallocHost(&memory, bytes); error != cudaSuccess) {
    (void)cudaGetLastError();
    return ToStatus(error, absl::StrCat(std::string(what), ": cannot have ", bytes, " bytes of pinned host memory"));
  }
  std::memset(memory, 0, bytes);
  return PinnedMemory(memory);
}

}  // namespace sluice::kernels::cuda
