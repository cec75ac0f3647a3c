// The messages that wait for a Work stream's single write in flight. Pure; one user at a time.
//
// While a write is under way everything new is merged into few messages, in order: a router that is slow for a moment
// costs it granularity, not memory. A router that stays slow reaches the limit, and its stream must be given up.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>

#include "proto/worker.pb.h"

namespace sluice::worker {

class Outbox {
 public:
  // A message grows up to `merge_bytes` by merging (below what a peer accepts as one message); all of them together
  // stay within `limit_bytes`.
  Outbox(size_t merge_bytes, size_t limit_bytes) : merge_bytes_(merge_bytes), limit_bytes_(limit_bytes) {}

  // False if the limit is reached: the message is dropped, and with it the stream's meaning.
  bool Push(v1::WorkerMessage message);

  std::optional<v1::WorkerMessage> Pop();

  bool empty() const { return waiting_.empty(); }
  size_t messages() const { return waiting_.size(); }
  size_t bytes() const { return bytes_; }
  void Clear();

 private:
  struct Waiting {
    v1::WorkerMessage message;
    size_t bytes = 0;  // an upper bound once merged
  };

  size_t merge_bytes_, limit_bytes_;
  std::deque<Waiting> waiting_;
  size_t bytes_ = 0;
};

}  // namespace sluice::worker
