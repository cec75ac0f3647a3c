// Pauses between tries that fail: the first one, doubled each time up to the longest, with jitter that is handed in.
#pragma once

#include <algorithm>

#include "absl/time/time.h"

namespace sluice::discovery {

struct RetryPace {
  absl::Duration first = absl::Milliseconds(100);
  absl::Duration longest = absl::Seconds(1);
};

class Backoff {
 public:
  explicit Backoff(RetryPace pace) : pace_(pace) {}

  // `spread` in [0, 1): those that lost the same thing do not come back in one burst.
  absl::Duration Next(double spread) {
    const absl::Duration pause = std::min(pace_.longest, pace_.first * (1 << std::min(failures_, 16)));
    ++failures_;
    return pause * (0.5 + 0.5 * spread);
  }
  void Reset() { failures_ = 0; }
  int failures() const { return failures_; }  // in a row

 private:
  RetryPace pace_;
  int failures_ = 0;
};

}  // namespace sluice::discovery
