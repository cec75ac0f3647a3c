// Keeps requests away from a worker that fails one after the other, and lets one try now and then. Pure.
//
//   closed ──several failures in a row──▶ open ──time──▶ half open ──one try succeeds──▶ closed
//                                           ◀──────────────────┴── it fails: for twice as long
#pragma once

#include <algorithm>

#include "absl/time/time.h"

namespace sluice::router {

class Breaker {
 public:
  // Failures at about the same time are one: a pair that breaks fails all that it carries.
  void Failed(absl::Time now) {
    if (now - last_failure_ < kSameCause) return;
    last_failure_ = now;
    ++failures_;
    if (failures_ < kFailures) return;
    pause_ = std::min(kLongest, pause_ == absl::ZeroDuration() ? kFirst : 2 * pause_);
    open_until_ = now + pause_;
  }

  void Succeeded() { *this = Breaker(); }

  // A request goes there. Half open, no other one does until it is known what became of it, or for a pause.
  void Dispatched(absl::Time now) {
    if (open()) open_until_ = now + pause_;
  }

  bool Allows(absl::Time now) const { return now >= open_until_; }
  bool open() const { return failures_ >= kFailures; }
  absl::Time open_until() const { return open_until_; }

 private:
  static constexpr int kFailures = 3;
  static constexpr absl::Duration kSameCause = absl::Milliseconds(100);
  static constexpr absl::Duration kFirst = absl::Seconds(1);
  static constexpr absl::Duration kLongest = absl::Seconds(30);

  int failures_ = 0;
  absl::Time last_failure_ = absl::InfinitePast();
  absl::Duration pause_;
  absl::Time open_until_ = absl::InfinitePast();
};

}  // namespace sluice::router
