// What happened to a request and when, on the router's clock, from its receipt on. Pure; bounded.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "proto/worker.pb.h"

namespace sluice::router {

namespace pb = ::sluice::v1;

class Timeline {
 public:
  explicit Timeline(absl::Time received) : received_(received) {}

  void Mark(const std::string& event, absl::Time now, const std::string& worker, int64_t amount = 0);

  // An entry of a worker's. Its clock starts when the request reaches it; it is put on this clock by the time at which
  // the request was sent there, which makes it early by the way there. That is small, and no order of different
  // workers' entries hangs on it.
  void Add(const pb::TimelineEvent& event, absl::Time sent, absl::Time now, const std::string& worker);

  // By time; workers' entries come late.
  std::vector<pb::TimelineEvent> Sorted() const;

 private:
  absl::Time received_;
  std::vector<pb::TimelineEvent> entries_;
};

// What a timeline tells of a request's times: queue_ms, ttft_ms and the entries themselves.
pb::Timing TimingOf(const std::vector<pb::TimelineEvent>& timeline);

}  // namespace sluice::router
