#include "engine/files/packed_file.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <sstream>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"

namespace sluice::engine {
namespace {

// The file: regions at page borders, then an index of lines "offset bytes name", then the trailer.
constexpr char kMagic[8] = {'S', 'L', 'U', 'P', 'A', 'C', 'K', '1'};
constexpr size_t kPage = 4096;

struct Trailer {
  std::array<uint8_t, 32> digest;  // SHA-256 of everything before the trailer
  uint64_t index_offset;
  uint64_t index_bytes;
  char magic[8];
};

class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& o) noexcept : fd_(std::exchange(o.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& o) noexcept {
    std::swap(fd_, o.fd_);
    return *this;
  }
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

class Mapping {
 public:
  Mapping(void* data, size_t bytes) : data_(static_cast<std::byte*>(data)), bytes_(bytes) {}
  Mapping(Mapping&& o) noexcept : data_(std::exchange(o.data_, nullptr)), bytes_(o.bytes_) {}
  Mapping& operator=(Mapping&&) = delete;
  ~Mapping() {
    if (data_ != nullptr) munmap(data_, bytes_);
  }
  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  std::byte* data_;
  size_t bytes_;
};

absl::Status Failed(const std::string& path, const char* what) {
  return absl::UnavailableError(absl::StrCat(path, ": ", what, ": ", std::generic_category().message(errno)));
}

std::array<uint8_t, 32> Digest(const std::vector<std::pair<const std::byte*, size_t>>& parts) {
  std::array<uint8_t, 32> digest;
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  CHECK(context != nullptr && EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr) == 1);
  for (const auto& [data, bytes] : parts) CHECK_EQ(EVP_DigestUpdate(context.get(), data, bytes), 1);
  CHECK_EQ(EVP_DigestFinal_ex(context.get(), digest.data(), nullptr), 1);
  return digest;
}

// A sealed file, mapped read-only.
class FilledFile final : public PackedFile {
 public:
  // Null when the file is missing, damaged or of another version.
  static std::unique_ptr<FilledFile> Open(const std::string& path) {
    const Descriptor fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    struct stat info;
    if (fd.get() < 0 || fstat(fd.get(), &info) != 0 || size_t(info.st_size) < sizeof(Trailer)) return nullptr;
    const size_t bytes = size_t(info.st_size);
    void* data = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd.get(), 0);
    if (data == MAP_FAILED) return nullptr;
    std::unique_ptr<FilledFile> file(new FilledFile(Mapping(data, bytes)));
    if (file->ReadIndex()) return file;
    LOG(WARNING) << path << " is damaged or of another version: it is packed anew";
    return nullptr;
  }

  bool filled() const override { return true; }

  absl::StatusOr<Region> Find(const std::string& name, size_t bytes) override {
    const auto it = index_.find(name);
    if (it == index_.end() || it->second.second != bytes) {
      return absl::NotFoundError(absl::StrCat("the packed weights have no ", name, " of ", bytes, " bytes"));
    }
    return Region{mapping_.data() + it->second.first, true};
  }

  absl::Status Seal() override { return absl::FailedPreconditionError("the packed weights are sealed already"); }
  void Abandon() override {}

 private:
  explicit FilledFile(Mapping mapping) : mapping_(std::move(mapping)) {}

  bool ReadIndex() {
    const size_t body = mapping_.bytes() - sizeof(Trailer);
    Trailer trailer;
    std::memcpy(&trailer, mapping_.data() + body, sizeof trailer);
    if (std::memcmp(trailer.magic, kMagic, sizeof kMagic) != 0) return false;
    if (trailer.index_offset > body || trailer.index_bytes != body - trailer.index_offset) return false;
    if (Digest({{mapping_.data(), body}}) != trailer.digest) return false;
    std::istringstream lines(
        std::string(reinterpret_cast<const char*>(mapping_.data()) + trailer.index_offset, trailer.index_bytes));
    size_t offset, bytes;
    for (std::string name; lines >> offset >> bytes >> name;) {
      if (offset > trailer.index_offset || bytes > trailer.index_offset - offset) return false;
      index_[name] = {offset, bytes};
    }
    return true;
  }

  Mapping mapping_;
  std::map<std::string, std::pair<size_t, size_t>> index_;  // name: offset, bytes
};

// A file that is being written under another name; the lock is held until it is sealed or abandoned.
class FillingFile final : public PackedFile {
 public:
  FillingFile(std::string path, std::string temporary, Descriptor fd, Descriptor lock)
      : path_(std::move(path)), temporary_(std::move(temporary)), fd_(std::move(fd)), lock_(std::move(lock)) {}
  ~FillingFile() override { Abandon(); }

  bool filled() const override { return false; }

  absl::StatusOr<Region> Find(const std::string& name, size_t bytes) override {
    CHECK(!ended_ && bytes > 0);
    const size_t padded = (bytes + kPage - 1) / kPage * kPage;
    // Reserved, or a full disk would show as a signal when the mapping is written.
    if (const int error = posix_fallocate(fd_.get(), off_t(end_), off_t(padded)); error != 0) {
      return absl::ResourceExhaustedError(
          absl::StrCat(temporary_, ": no room for ", bytes, " bytes: ", std::generic_category().message(error)));
    }
    void* data = mmap(nullptr, padded, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), off_t(end_));
    if (data == MAP_FAILED) return Failed(temporary_, "cannot be mapped");
    regions_.push_back({name, end_, bytes, Mapping(data, padded)});
    end_ += padded;
    return Region{static_cast<std::byte*>(data), false};
  }

  absl::Status Seal() override {
    CHECK(!ended_);
    std::string index;
    std::vector<std::pair<const std::byte*, size_t>> parts;
    for (const Filled& r : regions_) {
      absl::StrAppend(&index, r.offset, " ", r.bytes, " ", r.name, "\n");
      parts.emplace_back(r.mapping.data(), r.mapping.bytes());
    }
    parts.emplace_back(reinterpret_cast<const std::byte*>(index.data()), index.size());
    Trailer trailer{.digest = Digest(parts), .index_offset = end_, .index_bytes = index.size(), .magic = {}};
    std::memcpy(trailer.magic, kMagic, sizeof kMagic);
    index.append(reinterpret_cast<const char*>(&trailer), sizeof trailer);
    if (pwrite(fd_.get(), index.data(), index.size(), off_t(end_)) != ssize_t(index.size())) {
      return Failed(temporary_, "cannot be written");
    }
    if (rename(temporary_.c_str(), path_.c_str()) != 0) return Failed(path_, "cannot be replaced");
    End();
    return absl::OkStatus();
  }

  void Abandon() override {
    if (ended_) return;
    unlink(temporary_.c_str());  // while the lock is held: it may be another process's afterwards
    End();
  }

 private:
  struct Filled {
    std::string name;
    size_t offset, bytes;
    Mapping mapping;
  };

  void End() {
    ended_ = true;
    lock_ = Descriptor();
  }

  const std::string path_, temporary_;
  Descriptor fd_, lock_;
  std::vector<Filled> regions_;
  size_t end_ = 0;
  bool ended_ = false;  // sealed or abandoned: the lock is gone
};

}  // namespace

absl::StatusOr<std::unique_ptr<PackedFile>> PackedFile::Open(const std::string& folder, const std::string& key) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return absl::UnavailableError(absl::StrCat(folder, ": cannot be made: ", error.message()));
  const std::string path = absl::StrCat(folder, "/", key, ".packed"), temporary = absl::StrCat(path, ".new");
  if (auto file = FilledFile::Open(path)) return file;
  Descriptor lock(open(absl::StrCat(path, ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (lock.get() < 0) return Failed(path, "cannot be locked");
  while (flock(lock.get(), LOCK_EX) != 0) {
    if (errno != EINTR) return Failed(path, "cannot be locked");
  }
  if (auto file = FilledFile::Open(path)) return file;  // somebody filled it meanwhile
  Descriptor fd(open(temporary.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (fd.get() < 0) return Failed(temporary, "cannot be written");
  return std::make_unique<FillingFile>(path, temporary, std::move(fd), std::move(lock));
}

}  // namespace sluice::engine
