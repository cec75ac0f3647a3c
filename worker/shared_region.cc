#include "worker/shared_region.h"

#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"

namespace sluice::worker {
namespace {

std::byte* Map(int fd, size_t bytes) {
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) return nullptr;
  madvise(data, bytes, MADV_HUGEPAGE);  // where the system has it for such memory
  return static_cast<std::byte*>(data);
}

absl::Status NoMemory(size_t bytes) {
  return absl::ResourceExhaustedError(
      absl::StrCat("cannot get ", bytes, " bytes that ranks share (", strerror(errno), "); lower --kv-bytes"));
}

}  // namespace

absl::StatusOr<SharedRegion> SharedRegion::Make(size_t bytes) {
  const int fd = memfd_create("sluice-ranks", MFD_CLOEXEC);
  if (fd < 0) return NoMemory(bytes);
  if (ftruncate(fd, off_t(bytes)) != 0) {
    close(fd);
    return NoMemory(bytes);
  }
  std::byte* data = Map(fd, bytes);
  if (data == nullptr) {
    close(fd);
    return NoMemory(bytes);
  }
  return SharedRegion(fd, data, bytes);
}

absl::StatusOr<SharedRegion> SharedRegion::Inherit(int fd) {
  struct stat facts;
  if (fstat(fd, &facts) != 0 || facts.st_size <= 0) {
    return absl::InvalidArgumentError(absl::StrCat("--tp-memory: ", fd, " is no memory of an instance"));
  }
  std::byte* data = Map(fd, size_t(facts.st_size));
  close(fd);
  if (data == nullptr) return NoMemory(size_t(facts.st_size));
  return SharedRegion(-1, data, size_t(facts.st_size));
}

SharedRegion::SharedRegion(SharedRegion&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

SharedRegion::~SharedRegion() {
  if (data_ != nullptr) munmap(data_, bytes_);
  if (fd_ >= 0) close(fd_);
}

}  // namespace sluice::worker
