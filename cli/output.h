// Standard output, whose trouble (a full disk, a closed pipe) is an error like any other.
#pragma once

#include <string_view>

#include "absl/status/status.h"

namespace sluice::cli {

// Written and flushed, or why not.
absl::Status Print(std::string_view text);

}  // namespace sluice::cli
