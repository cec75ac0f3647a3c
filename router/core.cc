#include "router/core.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "router/worker_error.h"

namespace sluice::router {
namespace {

// A prefill worker's last word on a request.
bool HandedOver(const pb::WorkerEvent& event) {
  const auto& entries = event.progress().events();
  return std::any_of(entries.begin(), entries.end(), [](const auto& entry) { return entry.name() == "transfer_done"; });
}

}  // namespace

RouterCore::RouterCore(const CoreOptions& options)
    : options_(options),
      rng_(options.seed),
      registry_(options.registry),
      queue_(options.queue),
      prefixes_(options.prefix_entries),
      log_(options.ended_requests) {}

std::vector<Action> RouterCore::Handle(Event event, absl::Time now) {
  now_ = now;
  actions_.clear();
  std::visit([this](auto& e) { On(e); }, event);
  Advance();
  return std::move(actions_);
}

// ---- clients ----

void RouterCore::On(Submit& event) {
  const uint64_t call = event.call;
  const absl::Time deadline = event.deadline;
  std::string wire_id = absl::StrCat(event.request_id, "/", call);
  if (event.ttft_limit == absl::ZeroDuration()) event.ttft_limit = options_.ttft_slo;
  if (event.tpot_limit == absl::ZeroDuration()) event.tpot_limit = options_.tpot_slo;
  auto request = std::make_unique<Request>(std::move(event), wire_id, options_.request);
  RefusalReason why = RefusalReason::kNone;
  absl::Status refused = CheckNew(*request, why);
  if (refused.ok()) {
    refused = queue_.Add(EntryOf(*request, 0));
    why = RefusalReason::kQueueFull;
  }
  if (!refused.ok()) {
    ClientEnd end = request->End(refused, now_);
    end.refusal = why;
    if (absl::IsResourceExhausted(refused)) end.retry_after = queue_.RetryAfter();
    return EndRequest(*request, std::move(end));
  }
  if (deadline != absl::InfiniteFuture()) deadlines_.emplace(deadline, call);
  wire_ids_[wire_id] = call;
  requests_[call] = std::move(request);
}

void RouterCore::EndRequest(const Request& request, ClientEnd end) {
  if (options_.ended_requests > 0) log_.Add(request.Summary(now_, &end), now_);
  actions_.push_back(std::move(end));
}

absl::Status RouterCore::CheckNew(const Request& request, RefusalReason& why) {
  why = RefusalReason::kShutdown;
  if (shut_down_) return absl::UnavailableError("router is shutting down");
  const Demand demand = request.demand(0);
  const Pools pools = Live(demand.ttft_limit_ms > 0 ? &request : nullptr);
  why = RefusalReason::kNoWorker;
  if (const std::string missing = WhoIsMissing(pools, demand, options_.policy); !missing.empty()) {
    return absl::UnavailableError(missing);
  }
  if (demand.ttft_limit_ms <= 0) return absl::OkStatus();
  const double predicted = PredictedTtftMs(pools, demand, queue_.prompt_tokens());
  if (predicted <= demand.ttft_limit_ms) return absl::OkStatus();
  why = RefusalReason::kTtftSlo;
  return absl::ResourceExhaustedError(
      absl::StrFormat("the first token would come after about %.0f ms, later than the %.0f ms that the request allows; "
                      "%d requests wait",
                      predicted, demand.ttft_limit_ms, queue_.size()));
}

void RouterCore::EndAt(uint64_t incarnation, const AttemptKey& key) {
  if (WorkerLoad* load = LoadOf(incarnation)) load->Ended(key);
  prefixes_.Ended(incarnation, key);
}

void RouterCore::On(ClientCancel& event) {
  EndCall(event.call, event.why);
}

void RouterCore::On(StopFound& event) {
  auto it = requests_.find(event.call);
  if (it == requests_.end()) return;
  Apply(*it->second, it->second->OnStopped(event.choice, now_));
}

void RouterCore::EndCall(uint64_t call, const absl::Status& why) {
  auto it = requests_.find(call);
  if (it == requests_.end()) return;
  Apply(*it->second, it->second->OnEnded(why, now_));
}

WorkerLoad* RouterCore::LoadOf(uint64_t incarnation) {
  auto it = loads_.find(incarnation);
  return it == loads_.end() ? nullptr : &it->second;
}

void RouterCore::Apply(Request& request, Transition transition) {
  if (transition.ignored) return;
  for (pb::Tokens& tokens : transition.tokens) {
    if (tokens.choice() == 0) request.Emitted(now_);
    actions_.push_back(ClientTokens{request.call(), now_, std::move(tokens)});
  }
  for (ToWorker& out : transition.to_workers) Send(out.incarnation, std::move(out.message));
  for (const Transition::Hold& hold : transition.leaving) {
    const bool leased = hold.lease > absl::ZeroDuration();
    const absl::Time forget_at = now_ + (leased ? hold.lease : options_.registry.lease);
    closing_[{hold.incarnation, {request.wire_id(), hold.attempt}}] = {forget_at};
    forget_due_ = std::min(forget_due_, forget_at);
  }
  for (const Transition::Hold& hold : transition.freed) {
    EndAt(hold.incarnation, {request.wire_id(), hold.attempt});
  }
  for (int leg : transition.unqueue) {
    queue_.Remove({request.call(), leg});
    std::erase_if(parked_, [&](const auto& p) { return p.second == Ticket{request.call(), leg}; });
  }
  for (const Transition::Requeue& back : transition.requeue) {
    if (back.not_before > now_) {
      parked_.emplace(back.not_before, Ticket{request.call(), back.leg});
    } else {
      Requeue(request, back.leg);
    }
  }
  if (!transition.moved.empty()) ++counters_.moves;
  if (!transition.moved.empty() && !transition.end.has_value()) {
    Say(false, absl::StrCat("request ", request.wire_id(), " moves (", request.moves(), "): ", transition.moved));
  }
  if (transition.end.has_value()) {
    EndRequest(request, request.End(*transition.end, now_));
    Erase(request);
  }
}

void RouterCore::Requeue(const Request& request, int leg) {
  queue_.PutBack(EntryOf(request, leg));
}

Queue::Entry RouterCore::EntryOf(const Request& request, int leg) const {
  const Demand demand = request.demand(leg);
  return {.ticket = {request.call(), leg},
          .priority = request.priority(),
          .tenant = request.tenant(),
          .tokens = demand.prompt_tokens + demand.AllAnswerTokens(),
          .prompt_tokens = demand.prompt_tokens,
          .arrival = request.arrival()};
}

void RouterCore::Erase(Request& request) {
  for (int leg = 0; leg < request.legs(); ++leg) queue_.Remove({request.call(), leg});
  std::erase_if(parked_, [&](const auto& p) { return p.second.call == request.call(); });
  deadlines_.erase({request.deadline(), request.call()});
  wire_ids_.erase(request.wire_id());
  requests_.erase(request.call());
}

void RouterCore::On(Shutdown&) {
  shut_down_ = true;
  std::vector<uint64_t> calls;
  for (const auto& [call, request] : requests_) calls.push_back(call);
  std::sort(calls.begin(), calls.end());
  for (uint64_t call : calls) EndCall(call, absl::UnavailableError("router is shutting down"));
  for (const auto& [incarnation, worker] : registry_.workers()) {
    if (worker.session != 0) {
      actions_.push_back(CloseAnnounce{worker.session, absl::UnavailableError("router is shutting down")});
    }
    if (worker.link != 0) actions_.push_back(DisconnectWorker{worker.link, "router is shutting down"});
  }
}

// ---- registration ----

void RouterCore::On(WorkerAnnounced& event) {
  if (shut_down_) {
    actions_.push_back(CloseAnnounce{event.session, absl::UnavailableError("router is shutting down")});
    return;
  }
  const bool known = registry_.Find(event.info.incarnation()) != nullptr &&
                     registry_.Find(event.info.incarnation())->state != pb::WORKER_STATE_GONE;
  absl::StatusOr<std::vector<Registry::Loss>> losses = registry_.Announce(event.session, event.info, now_);
  if (!losses.ok()) {
    Say(false, absl::StrFormat("worker %s:%d is refused: %s", event.info.work().host(), event.info.work().port(),
                               losses.status().message()));
    actions_.push_back(CloseAnnounce{event.session, losses.status()});
    return;
  }
  CountLost(*losses);
  Lose(*losses);
  if (!known) {
    loads_[event.info.incarnation()] = WorkerLoad(event.info);
    Say(false, absl::StrFormat("worker %s announced: %d blocks, pid %d, incarnation %016x",
                               registry_.Find(event.info.incarnation())->name(), event.info.blocks_total(),
                               event.info.pid(), event.info.incarnation()));
  }
  AnswerAnnouncement(*registry_.Find(event.info.incarnation()));
}

// Complete each time: a worker keeps the newest one only.
void RouterCore::AnswerAnnouncement(WorkerRecord& worker) {
  pb::AnnounceReply reply;
  reply.set_router_incarnation(options_.router_incarnation);
  reply.set_lease_ms(int32_t(absl::ToInt64Milliseconds(options_.registry.lease)));
  reply.set_heartbeat_ms(int32_t(absl::ToInt64Milliseconds(options_.registry.heartbeat)));
  reply.set_drain(worker.told_to_drain);
  if (worker.info.role() == pb::ROLE_PREFILL) {
    worker.peers_told = registry_.DecodePeers();
    worker.peers_session = worker.session;
    reply.set_peers_valid(true);
    for (uint64_t decode : worker.peers_told) *reply.add_decode_peers() = registry_.PeerOf(decode);
  }
  actions_.push_back(AnswerAnnounce{worker.session, std::move(reply)});
}

void RouterCore::On(WorkerHeartbeat& event) {
  const WorkerRecord* before = registry_.FindSession(event.session);
  const bool was_stuck = before != nullptr && before->report.stuck();
  if (!registry_.Heartbeat(event.session, event.report, now_)) return;
  WorkerRecord& worker = *registry_.FindSession(event.session);
  if (event.report.stuck() != was_stuck) {
    Say(false, absl::StrCat("worker ", worker.name(), was_stuck ? " comes forward again" : " is stuck in one step"));
  }
  loads_[worker.incarnation()].Report(event.report);
  NotePairs(worker);
}

void RouterCore::NotePairs(WorkerRecord& worker) {
  for (const Registry::PairChange& change : registry_.UpdatePairs(worker)) {
    const WorkerRecord* decode = registry_.Find(change.decode);
    const std::string pair =
        absl::StrFormat("pair %s with %s", worker.name(),
                        decode == nullptr ? absl::StrFormat("decode worker %016x", change.decode) : decode->name());
    if (change.after == PairState::kRefused) {
      Say(false, absl::StrCat(pair, " is refused, they will not serve together: ", change.why));
    } else {
      Say(false, absl::StrCat(pair, change.after == PairState::kUp ? " is up" : " is down"));
    }
  }
}

void RouterCore::On(WorkerLeaving& event) {
  actions_.push_back(CloseAnnounce{event.session, absl::OkStatus()});  // first: it asked for nothing worse
  Lose(registry_.Leaving(event.session, now_));
}

void RouterCore::On(AnnounceLost& event) {
  registry_.AnnounceLost(event.session);
}

void RouterCore::CountLost(const std::vector<Registry::Loss>& losses) {
  for (const Registry::Loss& loss : losses) {
    const WorkerRecord* worker = registry_.Find(loss.incarnation);
    if (worker != nullptr) ++counters_.workers_lost[size_t(worker->info.role()) % counters_.workers_lost.size()];
  }
}

void RouterCore::Lose(const std::vector<Registry::Loss>& losses) {
  for (const Registry::Loss& loss : losses) {
    Say(false, absl::StrCat("worker gone: ", loss.why));
    if (loss.link != 0) actions_.push_back(DisconnectWorker{loss.link, loss.why});
    if (loss.session != 0) actions_.push_back(CloseAnnounce{loss.session, absl::UnavailableError(loss.why)});
    LoseRequests(loss.incarnation, loss.why);
    loads_.erase(loss.incarnation);
    breakers_.erase(loss.incarnation);
    prefixes_.Forget(loss.incarnation);
  }
}

void RouterCore::LoseRequests(uint64_t incarnation, const std::string& why) {
  std::vector<uint64_t> calls;
  for (const auto& [call, request] : requests_) {
    if (request->Involves(incarnation)) calls.push_back(call);
  }
  std::sort(calls.begin(), calls.end());
  for (uint64_t call : calls) {
    Request& request = *requests_[call];
    Apply(request, request.OnWorkerLost(incarnation, why, now_));
  }
  for (auto it = closing_.begin(); it != closing_.end();) {
    if (it->first.first == incarnation) {
      EndAt(incarnation, it->first.second);
      it = closing_.erase(it);
    } else {
      ++it;
    }
  }
  renewals_.erase(incarnation);
}

// ---- the Work streams ----

void RouterCore::On(LinkUp& event) {
  WorkerRecord* worker = registry_.FindLink(event.link);
  if (worker == nullptr) return;
  if (event.hello.worker_incarnation() != worker->incarnation()) {
    // Another process answers on the address; the one that was meant will be missed by its heartbeat.
    actions_.push_back(DisconnectWorker{event.link, "another incarnation answered"});
    registry_.LinkDown(event.link, now_);
    return;
  }
  registry_.LinkUp(event.link);
  Say(false, absl::StrCat("worker ", worker->name(), ": work stream is open"));
}

void RouterCore::On(LinkDown& event) {
  WorkerRecord* worker = registry_.FindLink(event.link);
  if (worker == nullptr) return;
  const bool was_up = worker->linked;
  registry_.LinkDown(event.link, now_);
  const std::string why = absl::StrFormat("%s: the work stream broke: %s", worker->name(), event.why.message());
  if (was_up || worker->backoff < absl::Milliseconds(200)) Say(false, absl::StrCat("worker ", why));
  LoseRequests(worker->incarnation(), why);
}

void RouterCore::On(DrainWorker& event) {
  WorkerRecord* worker = registry_.Find(event.incarnation);
  if (worker == nullptr || worker->state == pb::WORKER_STATE_GONE) return;
  registry_.Drain(*worker, now_);
  Say(false, absl::StrCat("worker ", worker->name(), " is drained: it gets no new requests",
                          event.hand_over ? ", and those that it has go on elsewhere" : ""));
  // Over both streams: the one that is open reaches it.
  if (worker->session != 0) AnswerAnnouncement(*worker);
  pb::RouterMessage message;
  message.mutable_drain()->set_hand_over(event.hand_over && worker->info.role() != pb::ROLE_PREFILL);
  Send(event.incarnation, std::move(message));
}

void RouterCore::On(WorkerBatch& event) {
  WorkerRecord* worker = registry_.FindLink(event.link);
  if (worker == nullptr || !worker->linked) return;
  if (event.message.has_prefixes() && !prefixes_.Apply(worker->incarnation(), event.message.prefixes())) {
    pb::RouterMessage again;
    again.mutable_replay_prefixes();
    Send(worker->incarnation(), std::move(again));
  }
  for (const pb::WorkerEvent& e : event.message.events()) OnWorkerEvent(*worker, e);
  if (event.message.has_report() && registry_.Report(*worker, event.message.report())) {
    loads_[worker->incarnation()].Report(event.message.report());
    NotePairs(*worker);
  }
}

bool RouterCore::OnClosing(uint64_t incarnation, const AttemptKey& key, const pb::WorkerEvent& event) {
  auto it = closing_.find({incarnation, key});
  if (it == closing_.end()) return false;
  if (event.has_failed() || event.has_refused() || (event.has_finished() && event.finished().last()) ||
      HandedOver(event)) {
    EndAt(incarnation, key);
    closing_.erase(it);
  }
  return true;
}

void RouterCore::Charge(WorkerLoad& load, const AttemptKey& key, const pb::WorkerEvent& event) {
  if (event.has_lease_granted()) load.Granted(key);
  if (load.role() != pb::ROLE_PREFILL) {
    if (event.has_tokens()) load.Generated(key, event.tokens().token_ids_size());
    return;
  }
  if (event.has_tokens()) load.Computed(key, std::numeric_limits<int64_t>::max());
  for (const pb::TimelineEvent& entry : event.progress().events()) {
    if (entry.name() == "prefill_chunk") load.Computed(key, entry.amount());
  }
}

void RouterCore::RenewFrom(uint64_t incarnation, absl::Duration lease) {
  Renewal& renewal = renewals_[incarnation];
  if (lease > absl::ZeroDuration()) renewal.lease = std::min(renewal.lease, lease);
  renewal.at = std::min(renewal.at, now_ + renewal.lease / 3);
  renew_due_ = std::min(renew_due_, renewal.at);
}

void RouterCore::Blame(const std::vector<uint64_t>& workers) {
  for (uint64_t incarnation : workers) {
    const WorkerRecord* worker = registry_.Find(incarnation);
    if (worker == nullptr) continue;
    Breaker& breaker = breakers_[incarnation];
    breaker.Failed(now_);
    if (!breaker.open()) continue;
    Say(false, absl::StrFormat("worker %s fails one request after the other: none goes there for %s", worker->name(),
                               absl::FormatDuration(breaker.open_until() - now_)));
  }
}

void RouterCore::OnWorkerEvent(WorkerRecord& worker, const pb::WorkerEvent& event) {
  const uint64_t incarnation = worker.incarnation();
  const AttemptKey key{event.key().request_id(), event.key().attempt()};
  if (OnClosing(incarnation, key, event)) return;
  auto wire = wire_ids_.find(key.first);
  if (wire == wire_ids_.end()) return;
  Request& request = *requests_[wire->second];
  const Origin from{incarnation, key.second};
  Charge(loads_[incarnation], key, event);
  switch (event.event_case()) {
    case pb::WorkerEvent::kLeaseGranted: {
      Transition transition = request.OnGranted(from, event.lease_granted(), now_);
      if (!transition.ignored) RenewFrom(incarnation, absl::Milliseconds(event.lease_granted().lease_ms()));
      return Apply(request, std::move(transition));
    }
    case pb::WorkerEvent::kRefused: {
      Transition transition = request.OnRefused(from, event.refused(), now_);
      if (!transition.requeue.empty() && event.refused().error().reason() != pb::NEVER_FITS) {
        loads_[incarnation].Refused(key, event.refused().blocks_free());
      }
      Say(true, absl::StrFormat("%s refused %s: %s", worker.name(), key.first, event.refused().error().message()));
      return Apply(request, std::move(transition));
    }
    case pb::WorkerEvent::kTokens:
      return Apply(request, request.OnTokens(from, event.tokens(), now_));
    case pb::WorkerEvent::kCommitted:
      breakers_.erase(incarnation);
      return Apply(request, request.OnCommitted(from, event.committed(), now_));
    case pb::WorkerEvent::kFailed: {
      Transition transition = request.OnFailed(from, event.failed(), now_);
      if (MayMove(event.failed().error().reason())) Blame(transition.blamed);
      return Apply(request, std::move(transition));
    }
    case pb::WorkerEvent::kFinished:
      breakers_.erase(incarnation);
      return Apply(request, request.OnFinished(from, event.finished(), now_));
    case pb::WorkerEvent::kProgress:
      if (HandedOver(event)) breakers_.erase(incarnation);
      return Apply(request, request.OnProgress(from, event.progress(), now_));
    case pb::WorkerEvent::EVENT_NOT_SET:
      return;
  }
}

}  // namespace sluice::router
