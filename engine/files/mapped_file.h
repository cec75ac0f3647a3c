// A whole file mapped read-only, unmapped with the object.
//
// Limit: whoever truncates the file while it is mapped kills the process (SIGBUS), as with any mapping. Replace model
// files by renaming a new one over them.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "absl/status/statusor.h"

namespace sluice::engine {

class MappedFile {
 public:
  // NOT_FOUND, PERMISSION_DENIED, or INVALID_ARGUMENT for what isn't a regular file; the message starts with the path.
  static absl::StatusOr<MappedFile> Open(const std::string& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const uint8_t> bytes() const { return bytes_; }

 private:
  explicit MappedFile(std::span<const uint8_t> bytes) : bytes_(bytes) {}
  std::span<const uint8_t> bytes_;  // empty: nothing is mapped
};

}  // namespace sluice::engine
