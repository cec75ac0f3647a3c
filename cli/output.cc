#include "cli/output.h"

#include <cerrno>
#include <iostream>

namespace sluice::cli {

absl::Status Print(std::string_view text) {
  if (std::cout) errno = 0;  // else it is the one of an earlier failure, if it is still there
  if (std::cout << text << std::flush) return absl::OkStatus();
  return absl::ErrnoToStatus(errno != 0 ? errno : EIO, "cannot write to standard output");
}

}  // namespace sluice::cli
