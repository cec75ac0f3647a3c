// Weights as a backend packed them, kept in a file so that the workers of a host share one copy in memory and later
// starts need not pack again. The first process fills the file, region by region; Seal makes it visible, all at once.
//
// Promises: what is found is what was sealed (SHA-256, checked when opened; a damaged or foreign file is replaced,
// never used). Of several processes that start together one fills and the others wait for it. A process that dies while
// it fills leaves nothing that others would use.
//
// Limits: whoever truncates the file while it is mapped kills the process, as with any mapping. Old files are not
// removed: deleting the folder is always safe.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace sluice::engine {

class PackedFile {
 public:
  struct Region {
    std::byte* data;  // at a page's start; written only where the file is not filled
    bool filled;      // holds what was sealed
  };

  // The file of `key` (letters, digits, dots and dashes) in `folder`, which is made where it is missing: an error names
  // the folder. May wait for another process that fills it.
  static absl::StatusOr<std::unique_ptr<PackedFile>> Open(const std::string& folder, const std::string& key);
  virtual ~PackedFile() = default;

  virtual bool filled() const = 0;

  // The region of that name. `bytes` > 0. RESOURCE_EXHAUSTED where the disk is full; NOT_FOUND where the file is filled
  // and has no such region of that size.
  virtual absl::StatusOr<Region> Find(const std::string& name, size_t bytes) = 0;

  // REQUIRES: not filled, and all regions written. They may be read on.
  virtual absl::Status Seal() = 0;

  // Gives up filling: nobody will find this file, and who waits for it may fill one of its own. The regions stay, for
  // this process. Nothing where the file is filled or sealed.
  virtual void Abandon() = 0;
};

}  // namespace sluice::engine
