#include "router/request_log.h"

#include <algorithm>
#include <utility>

namespace sluice::router {
namespace {

// A long prompt has an entry per chunk and piece; how it began and how it ended tell most.
void Shorten(v1::Timing& timing) {
  const int excess = timing.timeline_size() - RequestLog::kFirstEntries - RequestLog::kLastEntries;
  if (excess > 0) timing.mutable_timeline()->DeleteSubrange(RequestLog::kFirstEntries, excess);
}

}  // namespace

void RequestLog::Add(v1::RequestSummary summary, absl::Time ended) {
  if (limit_ == 0) return;
  Shorten(*summary.mutable_timing());
  if (entries_.size() < limit_) {
    entries_.push_back({std::move(summary), ended});
  } else {
    entries_[next_] = {std::move(summary), ended};
    next_ = (next_ + 1) % limit_;
  }
}

void RequestLog::AppendTo(v1::RequestList& list, int limit, absl::Time now) const {
  for (size_t i = entries_.size(); i > 0 && list.requests_size() < limit; --i) {
    const Entry& entry = entries_[(next_ + i - 1) % entries_.size()];
    v1::RequestSummary& shown = *list.add_requests() = entry.summary;
    // 0 would say that it runs.
    shown.set_ended_ms(std::max(0.001, absl::ToDoubleMilliseconds(now - entry.ended)));
  }
}

}  // namespace sluice::router
