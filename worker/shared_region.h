// The memory that the ranks of an instance share: an unnamed file that rank 0 makes and the others inherit.
#pragma once

#include <cstddef>

#include "absl/status/statusor.h"

namespace sluice::worker {

class SharedRegion {
 public:
  // Zero at first; resident only where touched. RESOURCE_EXHAUSTED, naming the bytes.
  static absl::StatusOr<SharedRegion> Make(size_t bytes);

  // Of a rank that was started with `fd`, which is closed.
  static absl::StatusOr<SharedRegion> Inherit(int fd);

  SharedRegion(SharedRegion&& other) noexcept;
  SharedRegion& operator=(SharedRegion&&) = delete;
  ~SharedRegion();

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  int fd() const { return fd_; }  // closed on exec; -1 where it was inherited

 private:
  SharedRegion(int fd, std::byte* data, size_t bytes) : fd_(fd), data_(data), bytes_(bytes) {}

  int fd_;
  std::byte* data_;
  size_t bytes_;
};

}  // namespace sluice::worker
