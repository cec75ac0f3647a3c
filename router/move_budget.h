// How often a request may move to other workers, and how long it waits before each move. Pure.
//
// A request that a worker's death interrupted moves at once. One that fails again and again without a further token may
// be what kills its workers: it gets few tries in a row, each a little later than the one before, and not many in all.
#pragma once

#include <algorithm>
#include <cstdint>

#include "absl/time/time.h"

namespace sluice::router {

struct MoveLimits {
  int in_a_row = 4;  // without a further token; 0: requests never move
  int in_all = 32;
  absl::Duration first_backoff = absl::Milliseconds(50);  // before the second move in a row; doubles
  absl::Duration longest_backoff = absl::Seconds(2);
  absl::Duration wait = absl::Seconds(30);  // for a worker to move to, where none is alive
};

class MoveBudget {
 public:
  explicit MoveBudget(const MoveLimits& limits) : limits_(limits) {}

  // Takes one move of a request that has emitted so many tokens. False: it has had its moves.
  bool Take(int64_t tokens) {
    if (tokens > tokens_) in_a_row_ = 0;
    tokens_ = tokens;
    if (in_a_row_ >= limits_.in_a_row || in_all_ >= limits_.in_all) return false;
    ++in_a_row_;
    ++in_all_;
    return true;
  }

  // Before the move that was taken last.
  absl::Duration Backoff() const {
    absl::Duration backoff = in_a_row_ < 2 ? absl::ZeroDuration() : limits_.first_backoff;
    for (int i = 2; i < in_a_row_ && backoff < limits_.longest_backoff; ++i) backoff *= 2;
    return std::min(backoff, limits_.longest_backoff);
  }

 private:
  MoveLimits limits_;
  int64_t tokens_ = 0;
  int in_a_row_ = 0;
  int in_all_ = 0;
};

}  // namespace sluice::router
