#include "simulation/schedule.h"

#include <algorithm>
#include <utility>

namespace sluice::simulation {

void Schedule::At(absl::Time at, What what) {
  uint32_t slot = uint32_t(slots_.size());
  if (free_.empty()) {
    slots_.push_back(std::move(what));
  } else {
    slot = free_.back();
    free_.pop_back();
    slots_[slot] = std::move(what);
  }
  heap_.push_back({std::max(at, now_), next_order_++, slot});
  std::push_heap(heap_.begin(), heap_.end(), Later);
}

bool Schedule::RunNext() {
  if (heap_.empty()) return false;
  std::pop_heap(heap_.begin(), heap_.end(), Later);
  const Entry entry = heap_.back();
  heap_.pop_back();
  now_ = entry.at;
  What what = std::exchange(slots_[entry.slot], nullptr);
  free_.push_back(entry.slot);
  what();
  return true;
}

absl::Time Schedule::next() const {
  return heap_.empty() ? absl::InfiniteFuture() : heap_.front().at;
}

}  // namespace sluice::simulation
