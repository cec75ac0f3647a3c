// The GPU that a backend uses, and its stream.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace sluice::kernels::cuda {

class Device {
 public:
  static absl::StatusOr<std::unique_ptr<Device>> Open(int index);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  int index() const { return index_; }
  cudaStream_t stream() const { return stream_; }

  // CUDA's current device is a thread's: whatever thread works with it calls this first.
  absl::Status MakeCurrent() const;

 private:
  explicit Device(int index) : index_(index) {}

  const int index_;
  cudaStream_t stream_ = nullptr;
};

}  // namespace sluice::kernels::cuda
