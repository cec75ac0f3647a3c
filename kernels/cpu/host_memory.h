// Large zeroed memory that the kernel hands out page by page: it costs nothing until it is written.
#pragma once

#include <cstddef>
#include <optional>
#include <utility>

namespace sluice::kernels::cpu {

// An anonymous mapping: zero, page-aligned, resident only where touched. From 2 MiB on the system is asked for huge
// pages: what reads weights or KV all over the place would else wait for page tables.
class HostMemory {
 public:
  // nullopt when the system refuses.
  static std::optional<HostMemory> Map(size_t bytes);

  HostMemory() = default;
  HostMemory(HostMemory&& o) noexcept : data_(std::exchange(o.data_, nullptr)), bytes_(std::exchange(o.bytes_, 0)) {}
  HostMemory& operator=(HostMemory&& o) noexcept {
    std::swap(data_, o.data_);
    std::swap(bytes_, o.bytes_);
    return *this;
  }
  ~HostMemory();

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  float* floats() const { return reinterpret_cast<float*>(data_); }

 private:
  HostMemory(std::byte* data, size_t bytes) : data_(data), bytes_(bytes) {}

  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace sluice::kernels::cpu
