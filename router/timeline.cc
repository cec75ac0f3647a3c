#include "router/timeline.h"

#include <algorithm>

namespace sluice::router {
namespace {

constexpr size_t kMaxWorkerEntries = 2000;  // what comes beyond it is dropped

}  // namespace

void Timeline::Mark(const std::string& event, absl::Time now, const std::string& worker, int64_t amount) {
  pb::TimelineEvent& entry = entries_.emplace_back();
  entry.set_name(event);
  entry.set_at_ms(absl::ToDoubleMilliseconds(now - received_));
  entry.set_worker(worker);
  entry.set_amount(amount);
}

void Timeline::Add(const pb::TimelineEvent& event, absl::Time sent, absl::Time now, const std::string& worker) {
  if (entries_.size() >= kMaxWorkerEntries) return;
  const double sent_ms = absl::ToDoubleMilliseconds(sent - received_);
  const double now_ms = absl::ToDoubleMilliseconds(now - received_);
  pb::TimelineEvent& entry = entries_.emplace_back(event);
  entry.set_at_ms(std::clamp(sent_ms + event.at_ms(), sent_ms, now_ms));
  entry.set_worker(worker);
}

std::vector<pb::TimelineEvent> Timeline::Sorted() const {
  std::vector<pb::TimelineEvent> sorted = entries_;
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.at_ms() < b.at_ms(); });
  return sorted;
}

}  // namespace sluice::router
