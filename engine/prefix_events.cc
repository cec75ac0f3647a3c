#include "engine/prefix_events.h"

namespace sluice::engine {

void PrefixEventLog::Add(bool stored, const BlockHash& name, const BlockHash& parent) {
  changes_.push_back({++last_, stored, name, parent});
  if (changes_.size() > capacity_) changes_.pop_front();
}

std::optional<std::vector<PrefixChange>> PrefixEventLog::Since(uint64_t after) const {
  if (after >= last_) return std::vector<PrefixChange>();
  const uint64_t missing = last_ - after;
  if (missing > changes_.size()) return std::nullopt;
  return std::vector<PrefixChange>(changes_.end() - int64_t(missing), changes_.end());
}

}  // namespace sluice::engine
