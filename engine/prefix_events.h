// What a prefix cache stored and removed, in order, for those who follow it from afar (routers). Pure.
//
// Numbers count up by one from 1, so a follower sees a gap. The log keeps the last `capacity` changes: a follower that
// is further behind starts again from PrefixCache::Snapshot.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "engine/block_hash.h"

namespace sluice::engine {

struct PrefixChange {
  uint64_t number = 0;
  bool stored = false;  // or removed
  BlockHash name;
  BlockHash parent;  // when stored; the root for a first block
};

class PrefixEventLog {
 public:
  explicit PrefixEventLog(size_t capacity = 1 << 16) : capacity_(capacity) {}

  void Add(bool stored, const BlockHash& name, const BlockHash& parent);

  // The number of the newest change, 0 if there was none.
  uint64_t last() const { return last_; }

  // All changes after number `after`, or nullopt when some of them are no longer here.
  std::optional<std::vector<PrefixChange>> Since(uint64_t after) const;

 private:
  const size_t capacity_;
  uint64_t last_ = 0;
  std::deque<PrefixChange> changes_;  // ends with number last_
};

}  // namespace sluice::engine
