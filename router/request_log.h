// The last requests that ended, for whoever looks: a ring of summaries. Pure.
//
// Bounded: `limit` requests, of each the first and last entries of its timeline. What is dropped is the oldest.
#pragma once

#include <cstddef>
#include <vector>

#include "absl/time/time.h"
#include "proto/serving.pb.h"

namespace sluice::router {

class RequestLog {
 public:
  static constexpr int kFirstEntries = 96;  // of a timeline
  static constexpr int kLastEntries = 32;

  explicit RequestLog(size_t limit) : limit_(limit) {}

  void Add(v1::RequestSummary summary, absl::Time ended);

  // Appends the newest, until `list` has `limit` requests. Their ages end with them; `ended_ms` counts until now.
  void AppendTo(v1::RequestList& list, int limit, absl::Time now) const;

  size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    v1::RequestSummary summary;
    absl::Time ended;
  };

  size_t limit_;
  size_t next_ = 0;  // the oldest, once the ring is full
  std::vector<Entry> entries_;
};

}  // namespace sluice::router
