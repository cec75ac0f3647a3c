// Virtual time: what is to happen, in order. What is due at the same moment happens in the order in which it was put
// down, so that a run depends on nothing else. One thread.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"

namespace sluice::simulation {

class Schedule {
 public:
  using What = absl::AnyInvocable<void()>;

  explicit Schedule(absl::Time start) : now_(start) {}

  absl::Time now() const { return now_; }
  void At(absl::Time at, What what);  // the past: now, after what is due now
  void After(absl::Duration delay, What what) { At(now_ + delay, std::move(what)); }

  // Moves the clock to what comes next and lets it happen. False: nothing is to come.
  bool RunNext();
  absl::Time next() const;  // InfiniteFuture: nothing is to come

 private:
  struct Entry {
    absl::Time at;
    uint64_t order;
    uint32_t slot;
  };
  static bool Later(const Entry& a, const Entry& b) { return a.at != b.at ? a.at > b.at : a.order > b.order; }

  absl::Time now_;
  uint64_t next_order_ = 0;
  std::vector<Entry> heap_;
  std::vector<What> slots_;  // so that the heap moves little
  std::vector<uint32_t> free_;
};

}  // namespace sluice::simulation
