// What follows from what the core has heard, and from time: connections, peers, timers, placement.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "router/core.h"

namespace sluice::router {

absl::Time RouterCore::NextDeadline() const {
  absl::Time next = registry_.NextDeadline();
  if (!deadlines_.empty()) next = std::min(next, deadlines_.begin()->first);
  next = std::min({next, renew_due_, forget_due_});
  for (const auto& [incarnation, breaker] : breakers_) {
    if (!queue_.empty() && !breaker.Allows(now_)) next = std::min(next, breaker.open_until());
  }
  if (!parked_.empty()) next = std::min(next, parked_.begin()->first);
  if (const absl::Time waits = HeadWaits(); waits > now_) next = std::min(next, waits);
  return next;
}

void RouterCore::Advance() {
  if (!shut_down_) {
    const std::vector<Registry::Loss> lost = registry_.Advance(now_);
    CountLost(lost);
    Lose(lost);
    Connect();
    TellPeers();
  }
  ExpireDeadlines();
  ExpireClosing();
  RenewLeases();
  Unpark();
  PlaceQueued();
  PublishPool();
}

void RouterCore::Connect() {
  for (uint64_t incarnation : registry_.DueToConnect(now_)) {
    WorkerRecord& worker = *registry_.Find(incarnation);
    const uint64_t link = next_link_++;
    registry_.Connecting(worker, link);
    actions_.push_back(ConnectWorker{link, incarnation, worker.info.work()});
  }
}

void RouterCore::TellPeers() {
  if (registry_.peers_version() == peers_version_) return;
  peers_version_ = registry_.peers_version();
  const std::vector<uint64_t> peers = registry_.DecodePeers();
  for (auto& [incarnation, worker] : registry_.workers()) {
    if (worker.info.role() != pb::ROLE_PREFILL || worker.session == 0) continue;
    if (worker.peers_session != worker.session || worker.peers_told != peers) AnswerAnnouncement(worker);
  }
}

void RouterCore::ExpireDeadlines() {
  while (!deadlines_.empty() && deadlines_.begin()->first <= now_) {
    const uint64_t call = deadlines_.begin()->second;
    const Request& request = *requests_[call];
    EndCall(call, absl::DeadlineExceededError(
                      absl::StrCat("the request's time is over; it was ", StateName(request.state()))));
  }
}

void RouterCore::ExpireClosing() {
  if (forget_due_ > now_) return;
  forget_due_ = absl::InfiniteFuture();
  for (auto it = closing_.begin(); it != closing_.end();) {
    if (it->second.forget_at > now_) {
      forget_due_ = std::min(forget_due_, it->second.forget_at);
      ++it;
      continue;
    }
    const auto& [incarnation, key] = it->first;
    EndAt(incarnation, key);
    it = closing_.erase(it);
  }
}

void RouterCore::Unpark() {
  while (!parked_.empty() && parked_.begin()->first <= now_) {
    const Ticket ticket = parked_.begin()->second;
    parked_.erase(parked_.begin());
    Requeue(*requests_.at(ticket.call), ticket.leg);
  }
}

void RouterCore::RenewLeases() {
  if (renew_due_ > now_) return;
  renew_due_ = absl::InfiniteFuture();
  for (auto it = renewals_.begin(); it != renewals_.end();) {
    auto& [incarnation, renewal] = *it;
    if (renewal.at > now_) {
      renew_due_ = std::min(renew_due_, renewal.at);
      ++it;
      continue;
    }
    pb::RouterMessage message;
    for (const auto& [call, request] : requests_) {
      for (uint64_t lease : request->LeasesAt(incarnation)) message.mutable_renew()->add_lease_ids(lease);
    }
    if (!message.has_renew()) {
      it = renewals_.erase(it);
      continue;
    }
    std::sort(message.mutable_renew()->mutable_lease_ids()->begin(),
              message.mutable_renew()->mutable_lease_ids()->end());
    renewal.at = now_ + renewal.lease / 3;
    renew_due_ = std::min(renew_due_, renewal.at);
    Send(incarnation, std::move(message));
    ++it;
  }
}

void RouterCore::PlaceQueued() {
  while (!queue_.empty() && PlaceHead()) {
  }
}

Pools RouterCore::Live(const Request* request, int leg) {
  Pools pools;
  pools.pair = [this](uint64_t prefill, uint64_t decode) { return registry_.Pair(prefill, decode); };
  auto load = loads_.begin();  // in the same order
  for (const auto& [incarnation, worker] : registry_.workers()) {
    const bool active = worker.state == pb::WORKER_STATE_ACTIVE;
    if (!active && (worker.state != pb::WORKER_STATE_SUSPECT || !worker.connected())) continue;
    const pb::Role role = worker.info.role();
    auto& pool = role == pb::ROLE_PREFILL ? pools.prefill : role == pb::ROLE_DECODE ? pools.decode : pools.both;
    Candidate& c = pool.emplace_back();
    c.incarnation = incarnation;
    c.name = worker.shown;
    while (load->first < incarnation) ++load;
    c.load = &load->second;
    c.active = active;
    if (!breakers_.empty()) {
      const auto breaker = breakers_.find(incarnation);
      c.active = active && (breaker == breakers_.end() || breaker->second.Allows(now_));
    }
    if (request == nullptr) continue;
    c.refused_ever = request->RefusedForEver(incarnation);
    c.shunned = request->Shuns(incarnation);
    c.cached_tokens = prefixes_.Cached(*request, leg, incarnation, worker.info.fingerprint());
  }
  return pools;
}

// True when the head left the queue.
bool RouterCore::PlaceHead() {
  const Ticket ticket = queue_.Head().ticket;
  Request& request = *requests_[ticket.call];
  const Placement placement =
      Place(Live(&request, ticket.leg), request.demand(ticket.leg), options_.policy, options_.explain, rng_);
  const bool moved = request.moves() > 0;
  switch (placement.kind) {
    case Placement::Kind::kPlace:
      Dispatch(request, ticket.leg, placement);
      return true;
    case Placement::Kind::kWait:
      return false;
    case Placement::Kind::kNever:
      if (!moved) {
        EndCall(request.call(), absl::InvalidArgumentError(placement.explanation));
        return true;
      }
      [[fallthrough]];  // it fitted somebody; he may come again
    case Placement::Kind::kNoWorker:
      if (HeadWaits() > now_) return false;
      EndCall(request.call(),
              absl::UnavailableError(moved ? absl::StrCat(request.moved_because().message(),
                                                          "; nobody could go on with it: ", placement.explanation)
                                           : placement.explanation));
      return true;
  }
  return false;
}

absl::Time RouterCore::HeadWaits() const {
  if (queue_.empty()) return absl::InfinitePast();
  return requests_.at(queue_.Head().ticket.call)->wait_until();
}

void RouterCore::Dispatch(Request& request, int leg, const Placement& placement) {
  const Queue::Entry entry = queue_.TakeHead(now_);
  request.Queued(entry.arrival);
  const Demand demand = request.demand(leg);
  const auto named = [this](uint64_t incarnation) {
    return Assignment::Worker{incarnation, incarnation == 0 ? "" : registry_.Find(incarnation)->name()};
  };
  const Assignment assignment{named(placement.decode), named(placement.prefill)};
  ToWorker out = request.Dispatch(leg, assignment, now_);
  // A prefill worker is charged now, although it hears of the request only when the lease is granted.
  const AttemptKey key = request.attempt(leg);
  ++turn_;
  if (placement.prefill != 0) {
    loads_[placement.prefill].Dispatched(key, AtPrefill(demand), placement.prefill_hit, turn_);
  }
  if (placement.decode != 0) {
    loads_[placement.decode].Dispatched(key, demand, placement.prefill == 0 ? placement.prefill_hit : 0, turn_);
  }
  for (uint64_t worker : {placement.prefill, placement.decode}) {
    if (auto breaker = breakers_.find(worker); breaker != breakers_.end()) breaker->second.Dispatched(now_);
  }
  const uint64_t computes = placement.prefill != 0 ? placement.prefill : placement.decode;
  prefixes_.Dispatched(request, leg, computes, registry_.Find(computes)->info.fingerprint());
  if (options_.explain) {
    const std::string both = placement.prefill != 0 && placement.decode != 0 ? " and " : "";
    Say(true, absl::StrCat("place ", request.wire_id(), " on ", assignment.prefill.name, both, assignment.decode.name,
                           ": ", placement.explanation));
  }
  Send(out.incarnation, std::move(out.message));
}

void RouterCore::PublishPool() {
  const bool time_counts = !breakers_.empty() || shut_down_;
  if (!time_counts && !pool_by_time_ && registry_.version() == pool_version_) return;
  pool_by_time_ = time_counts;
  pool_version_ = registry_.version();
  PoolChanged pool;
  const Pools live = Live(nullptr);
  const auto largest = [](const std::vector<Candidate>& candidates, int64_t at_least) {
    for (const Candidate& c : candidates) at_least = std::max(at_least, TokenCapacity(*c.load));
    return at_least;
  };
  const int64_t answers = largest(live.both, largest(live.decode, 0));
  pool.token_capacity = int(std::min<int64_t>(1 << 30, answers > 0 ? answers : largest(live.prefill, 0)));
  const auto active = [](const Candidate& c) { return c.active; };
  const bool alone = options_.policy.fallback && (live.prefill.empty() || live.decode.empty());
  const auto paired = [&](const Candidate& p) {
    return p.active && std::any_of(live.decode.begin(), live.decode.end(), [&](const Candidate& d) {
             return d.active && live.pair(p.incarnation, d.incarnation) == PairState::kUp;
           });
  };
  pool.serving = !shut_down_ && (std::any_of(live.both.begin(), live.both.end(), active) ||
                                 std::any_of(live.prefill.begin(), live.prefill.end(), paired) ||
                                 (alone && (std::any_of(live.decode.begin(), live.decode.end(), active) ||
                                            std::any_of(live.prefill.begin(), live.prefill.end(), active))));
  if (pool.serving == published_.serving && pool.token_capacity == published_.token_capacity) return;
  published_ = pool;
  actions_.push_back(pool);
}

void RouterCore::Send(uint64_t incarnation, pb::RouterMessage message) {
  const WorkerRecord* worker = registry_.Find(incarnation);
  if (worker == nullptr || worker->link == 0) return;  // the loss of the link is on its way
  actions_.push_back(SendToWorker{worker->link, std::move(message)});
}

void RouterCore::Say(bool debug, std::string text) {
  if (!debug || options_.explain) actions_.push_back(Note{debug, std::move(text)});
}

}  // namespace sluice::router
