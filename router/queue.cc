#include "router/queue.h"

#include <algorithm>

#include "absl/strings/str_format.h"

namespace sluice::router {

absl::Status Queue::Add(Entry entry) {
  if (size() >= options_.limit) {
    return absl::ResourceExhaustedError(absl::StrFormat("the queue is full (%d requests wait); try again in %d ms",
                                                        size(), absl::ToInt64Milliseconds(RetryAfter())));
  }
  if (const auto own = waiting_.find(entry.tenant);
      options_.tenant_limit > 0 && own != waiting_.end() && own->second >= options_.tenant_limit) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("tenant \"%s\" has %d requests in the queue, as many as one may", entry.tenant, own->second));
  }
  entry.arrival = next_arrival_++;
  Insert(std::move(entry), false);
  return absl::OkStatus();
}

void Queue::PutBack(Entry entry) {
  Insert(std::move(entry), true);
}

double Queue::WeightOf(const std::string& tenant) const {
  for (const auto& [name, weight] : options_.weights) {
    if (name == tenant) return weight;
  }
  return 1;
}

double Queue::Charge(const Entry& entry) const {
  return double(std::max<int64_t>(1, entry.tokens)) / WeightOf(entry.tenant);
}

void Queue::Insert(Entry entry, bool refund) {
  Class& cls = classes_[entry.priority];
  const std::string name = entry.tenant;
  Tenant& tenant = cls.tenants[name];
  if (tenant.waiting.empty()) {
    tenant.served = std::max(tenant.served, cls.clock);
    cls.weights += WeightOf(name);
  } else {
    DropTurn(cls, name);
  }
  if (refund) tenant.served -= Charge(entry);
  const Place place{entry.arrival, entry.ticket.leg};
  where_[entry.ticket] = {entry.priority, name, place};
  ++waiting_[name];
  prompt_tokens_ += entry.prompt_tokens;
  tenant.waiting[place] = std::move(entry);
  AddTurn(cls, name);
}

void Queue::AddTurn(Class& cls, const std::string& name) {
  Tenant& tenant = cls.tenants.at(name);
  const auto& [place, head] = *tenant.waiting.begin();
  cls.turns[{tenant.served, place, name}] = &head;
}

void Queue::DropTurn(Class& cls, const std::string& name) {
  const Tenant& tenant = cls.tenants.at(name);
  cls.turns.erase({tenant.served, tenant.waiting.begin()->first, name});
}

bool Queue::Remove(Ticket ticket) {
  auto it = where_.find(ticket);
  if (it == where_.end()) return false;
  const auto [priority, name, place] = it->second;
  where_.erase(it);
  if (--waiting_[name] == 0) waiting_.erase(name);
  Class& cls = classes_.at(priority);
  DropTurn(cls, name);
  Tenant& tenant = cls.tenants.at(name);
  prompt_tokens_ -= tenant.waiting.at(place).prompt_tokens;
  tenant.waiting.erase(place);
  if (!tenant.waiting.empty()) {
    AddTurn(cls, name);
  } else {
    cls.weights -= WeightOf(name);
    if (tenant.served <= cls.clock) cls.tenants.erase(name);
  }
  if (cls.turns.empty()) classes_.erase(priority);  // shares count among those who compete, so nothing is owed now
  return true;
}

const Queue::Entry& Queue::Head() const {
  return *classes_.begin()->second.turns.begin()->second;
}

Queue::Entry Queue::TakeHead(absl::Time now) {
  const Entry head = Head();
  Class& cls = classes_.begin()->second;
  Tenant& tenant = cls.tenants.at(head.tenant);
  cls.clock = std::max(cls.clock, tenant.served) + double(std::max<int64_t>(1, head.tokens)) / cls.weights;
  DropTurn(cls, head.tenant);
  tenant.served += Charge(head);
  AddTurn(cls, head.tenant);
  Remove(head.ticket);
  if (!classes_.empty()) Forget(classes_.begin()->second);
  // An idle gap says nothing about how fast a full queue drains, so only gaps under pressure count.
  if (!empty() && last_departure_ != absl::InfinitePast()) {
    departure_gap_ = 0.8 * departure_gap_ + 0.2 * (now - last_departure_);
  }
  last_departure_ = empty() ? absl::InfinitePast() : now;
  return head;
}

// Who waits for nothing and is behind the clock starts at the clock when it comes again, so nothing is lost with it.
void Queue::Forget(Class& cls) {
  if (cls.tenants.size() < 2 * cls.turns.size() + 64) return;
  std::erase_if(cls.tenants, [&](const auto& t) { return t.second.waiting.empty() && t.second.served <= cls.clock; });
}

int Queue::tenants() const {
  int tenants = 0;
  for (const auto& [priority, cls] : classes_) tenants += int(cls.tenants.size());
  return tenants;
}

absl::Duration Queue::RetryAfter() const {
  return std::clamp(departure_gap_ * size(), absl::Milliseconds(100), absl::Seconds(60));
}

}  // namespace sluice::router
