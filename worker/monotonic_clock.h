// Time that never goes back, as absl::Time: only differences mean something.
#pragma once

#include <time.h>

#include "absl/time/time.h"

namespace sluice::worker {

inline absl::Time MonotonicNow() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return absl::TimeFromTimespec(now);
}

}  // namespace sluice::worker
