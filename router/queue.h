// The router's queue: which request is next. Pure.
//
// Order: lower priority value first, then first come first served. A request that comes back after a refusal keeps its
// place, so it is ahead of everything that arrived later in its class. The bound holds for new requests only: what has
// been accepted once is never turned away. Taking a request out (cancel, deadline) touches no worker.
#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/time/time.h"

namespace sluice::router {

class Queue {
 public:
  explicit Queue(int limit) : limit_(limit) {}

  // RESOURCE_EXHAUSTED when `limit` requests wait already; RetryAfter() then tells when to come back.
  absl::Status Add(uint64_t call, int priority);

  // After a refusal: back to its old place, whatever the bound.
  void PutBack(uint64_t call, int priority, uint64_t arrival);

  bool Remove(uint64_t call);

  struct Entry {
    uint64_t call = 0;
    int priority = 0;
    uint64_t arrival = 0;
  };
  // REQUIRES: !empty()
  Entry Head() const;

  // Takes the head out because a worker got it; feeds the estimate behind RetryAfter.
  Entry TakeHead(absl::Time now);

  // How long a queue of this length took to drain lately, between 0.1 s and 60 s.
  absl::Duration RetryAfter() const;

  bool empty() const { return order_.empty(); }
  int size() const { return int(order_.size()); }
  int limit() const { return limit_; }

 private:
  using Place = std::pair<int, uint64_t>;  // priority, arrival

  int limit_;
  uint64_t next_arrival_ = 1;
  std::map<Place, uint64_t> order_;
  absl::flat_hash_map<uint64_t, Place> places_;
  absl::Time last_departure_ = absl::InfinitePast();
  absl::Duration departure_gap_ = absl::Seconds(1);  // moving average while the queue was never empty
};

}  // namespace sluice::router
