// Arrays of a device for benchmarks, full of harmless random numbers.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/cuda/backend/errors.h"
#include "kernels/cuda/backend/memory.h"

namespace sluice::bench {

// Enough copies of `bytes` that no cache holds them all.
inline int Copies(double bytes) {
  constexpr double kBeyondCaches = 256 << 20;
  return std::clamp(int(kBeyondCaches / std::max(bytes, 1.0)), 1, 64);
}

// The arrays of one launch or of several; alive as long as whoever has the shared pointer.
class DeviceData {
 public:
  // Numbers of about 0.01, as bf16.
  absl::StatusOr<void*> Bf16(size_t count) {
    std::vector<uint16_t> values(std::min(count, size_t{1} << 22));
    for (uint16_t& value : values) value = uint16_t((rng_() & 0x80ff) | 0x3c00);
    return Filled(values, count);
  }
  absl::StatusOr<void*> Floats(size_t count) {
    std::vector<float> values(std::min(count, size_t{1} << 20));
    for (float& value : values) value = float(rng_() % 1024) / 1024;
    return Filled(values, count);
  }
  template <typename T>
  absl::StatusOr<void*> Copy(const std::vector<T>& values) {
    return Filled(values, values.size());
  }
  absl::StatusOr<void*> Zeros(size_t bytes) {
    auto memory = kernels::cuda::NewDeviceMemory(bytes, "data of a benchmark");
    if (!memory.ok()) return memory.status();
    memory_.push_back(*std::move(memory));
    return memory_.back().get();
  }

 private:
  // `count` of T, the given ones again and again.
  template <typename T>
  absl::StatusOr<void*> Filled(const std::vector<T>& values, size_t count) {
    auto to = Zeros(count * sizeof(T));
    if (!to.ok()) return to.status();
    for (size_t at = 0; at < count; at += values.size()) {
      const size_t bytes = std::min(values.size(), count - at) * sizeof(T);
      const cudaError_t error = cudaMemcpy(static_cast<T*>(*to) + at, values.data(), bytes, cudaMemcpyHostToDevice);
      if (error != cudaSuccess) return kernels::cuda::ToStatus(error, "data of a benchmark");
    }
    return to;
  }

  std::mt19937 rng_{7};
  std::vector<kernels::cuda::DeviceMemory> memory_;
};

}  // namespace sluice::bench
