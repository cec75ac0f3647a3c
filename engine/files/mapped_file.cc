#include "engine/files/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/status/status.h"
#include "engine/files/concat.h"

namespace sluice::engine {
namespace {

absl::Status SystemError(const std::string& path, const char* what) {
  return absl::ErrnoToStatus(errno, Concat(path, ": ", what));
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

}  // namespace

absl::StatusOr<MappedFile> MappedFile::Open(const std::string& path) {
  // O_NONBLOCK: opening a pipe must not wait for a writer.
  const Descriptor fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (fd.get() < 0) {
    if (errno == ENOENT || errno == ENOTDIR) {
      return absl::NotFoundError(Concat(path, ": no such file; check the path of the model"));
    }
    return SystemError(path, "can't open");
  }
  struct stat info;
  if (fstat(fd.get(), &info) != 0) return SystemError(path, "can't read its size");
  if (S_ISDIR(info.st_mode)) {
    return absl::InvalidArgumentError(Concat(path, ": is a directory, not a model file; name the .gguf file in it"));
  }
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(Concat(path, ": is not a regular file; name a .gguf file"));
  }
  if (info.st_size == 0) return MappedFile({});
  const size_t size = size_t(info.st_size);
  void* data = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (data == MAP_FAILED) return SystemError(path, "can't map");
  return MappedFile({static_cast<const uint8_t*>(data), size});
}

MappedFile::MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) munmap(const_cast<uint8_t*>(bytes_.data()), bytes_.size());
}

}  // namespace sluice::engine
