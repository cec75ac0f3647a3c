#include "router/queue.h"

#include <algorithm>

#include "absl/strings/str_format.h"

namespace sluice::router {

absl::Status Queue::Add(uint64_t call, int priority) {
  if (size() >= limit_) {
    return absl::ResourceExhaustedError(absl::StrFormat("the queue is full (%d requests wait); try again in %d ms",
                                                        size(), absl::ToInt64Milliseconds(RetryAfter())));
  }
  PutBack(call, priority, next_arrival_++);
  return absl::OkStatus();
}

void Queue::PutBack(uint64_t call, int priority, uint64_t arrival) {
  const Place place{priority, arrival};
  order_[place] = call;
  places_[call] = place;
}

bool Queue::Remove(uint64_t call) {
  auto it = places_.find(call);
  if (it == places_.end()) return false;
  order_.erase(it->second);
  places_.erase(it);
  return true;
}

Queue::Entry Queue::Head() const {
  const auto& [place, call] = *order_.begin();
  return {call, place.first, place.second};
}

Queue::Entry Queue::TakeHead(absl::Time now) {
  const Entry head = Head();
  Remove(head.call);
  // An idle gap says nothing about how fast a full queue drains, so only gaps under pressure count.
  if (!empty() && last_departure_ != absl::InfinitePast()) {
    departure_gap_ = 0.8 * departure_gap_ + 0.2 * (now - last_departure_);
  }
  last_departure_ = empty() ? absl::InfinitePast() : now;
  return head;
}

absl::Duration Queue::RetryAfter() const {
  return std::clamp(departure_gap_ * size(), absl::Milliseconds(100), absl::Seconds(60));
}

}  // namespace sluice::router
