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

pb::Timing TimingOf(const std::vector<pb::TimelineEvent>& timeline) {
  pb::Timing timing;
  bool reserved = false;
  for (const pb::TimelineEvent& entry : timeline) {
    *timing.add_timeline() = entry;
    // Of several tries the last one counts. An answer of one token reserves nothing.
    if (entry.name() == "reserved" || (entry.name() == "prefilling" && !reserved)) timing.set_queue_ms(entry.at_ms());
    reserved |= entry.name() == "reserved";
    if (entry.name() == "first_token") timing.set_ttft_ms(entry.at_ms());
  }
  return timing;
}

}  // namespace sluice::router
