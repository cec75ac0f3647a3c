// The router's queue: which request is next. Pure.
//
// Order: lower priority value first. Within a priority tenants share fairly, by tokens: next is the tenant that has
// been served least (start-time fair queueing, charged when a request is taken, so that cancels cost nothing), and of
// that tenant's requests the first that came. A tenant that was away gets no credit for it. With one tenant, this is
// first come, first served.
//
// What comes back after a refusal or a move keeps its place, and its tenant its share. The bounds hold for new requests
// only: what has been accepted once is never turned away. Taking a request out (cancel, deadline) touches no worker.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/time/time.h"

namespace sluice::router {

// What waits: a leg of a call (request.h).
struct Ticket {
  uint64_t call = 0;
  int leg = 0;
  auto operator<=>(const Ticket&) const = default;
  template <typename H>
  friend H AbslHashValue(H h, const Ticket& t) {
    return H::combine(std::move(h), t.call, t.leg);
  }
};

struct QueueOptions {
  int limit = 1024;
  int tenant_limit = 0;                                 // of one tenant; 0: none but `limit`
  std::vector<std::pair<std::string, double>> weights;  // a tenant's share; who is not named has 1
};

class Queue {
 public:
  struct Entry {
    Ticket ticket;
    int priority = 0;
    std::string tenant;
    int64_t tokens = 1;  // what it is charged
    int64_t prompt_tokens = 0;
    uint64_t arrival = 0;  // given by Add
  };

  explicit Queue(QueueOptions options) : options_(std::move(options)) {}

  // RESOURCE_EXHAUSTED when as many wait as may; RetryAfter() then tells when to come back.
  absl::Status Add(Entry entry);

  // What was taken and needs a worker again, with the arrival that it had.
  void PutBack(Entry entry);

  bool Remove(Ticket ticket);

  // REQUIRES: !empty()
  const Entry& Head() const;

  // Takes the head out because a worker got it; feeds the estimate behind RetryAfter.
  Entry TakeHead(absl::Time now);

  // How long a queue of this length took to drain lately, between 0.1 s and 60 s.
  absl::Duration RetryAfter() const;

  bool empty() const { return where_.empty(); }
  int size() const { return int(where_.size()); }
  bool contains(Ticket ticket) const { return where_.contains(ticket); }
  int64_t prompt_tokens() const { return prompt_tokens_; }  // of all that wait
  int limit() const { return options_.limit; }
  int tenants() const;  // that something is remembered of

 private:
  using Place = std::pair<uint64_t, int>;               // arrival, leg: the order within a tenant
  using Turn = std::tuple<double, Place, std::string>;  // served, head's place, tenant: the order among tenants

  struct Tenant {
    double served = 0;  // tokens over weight, on the class's virtual clock
    std::map<Place, Entry> waiting;
  };
  // Of one priority.
  struct Class {
    double clock = 0;    // what a tenant that always waited would have been served; who comes starts here
    double weights = 0;  // of the tenants that wait
    size_t forget_at = 64;
    std::map<std::string, Tenant> tenants;  // those who wait, and those ahead of the clock
    std::map<Turn, const Entry*> turns;     // heads of those who wait
  };

  double WeightOf(const std::string& tenant) const;
  double Charge(const Entry& entry) const;
  void Insert(Entry entry, bool refund);
  void AddTurn(Class& cls, const std::string& name);
  void DropTurn(Class& cls, const std::string& name);
  void Forget(Class& cls);

  QueueOptions options_;
  uint64_t next_arrival_ = 1;
  int64_t prompt_tokens_ = 0;
  std::map<int, Class> classes_;  // by priority; none is empty
  absl::flat_hash_map<Ticket, std::tuple<int, std::string, Place>> where_;
  std::map<std::string, int> waiting_;  // by tenant
  absl::Time last_departure_ = absl::InfinitePast();
  absl::Duration departure_gap_ = absl::Seconds(1);  // moving average while the queue was never empty
};

}  // namespace sluice::router
