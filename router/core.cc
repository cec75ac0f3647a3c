#include "router/core.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace sluice::router {
namespace {

absl::Status NoWorker() {
  return absl::UnavailableError("no worker is alive; start one, or try again when one has announced itself");
}

}  // namespace

RouterCore::RouterCore(const CoreOptions& options)
    : options_(options), rng_(options.seed), registry_(options.registry), queue_(options.queue_limit) {}

std::vector<Action> RouterCore::Handle(Event event, absl::Time now) {
  now_ = now;
  actions_.clear();
  std::visit([this](auto& e) { On(e); }, event);
  Advance();
  return std::move(actions_);
}

absl::Time RouterCore::NextDeadline() const {
  absl::Time next = registry_.NextDeadline();
  if (!deadlines_.empty()) next = std::min(next, deadlines_.begin()->first);
  for (const auto& [incarnation, renewal] : renewals_) next = std::min(next, renewal.at);
  for (const auto& [key, closing] : closing_) next = std::min(next, closing.forget_at);
  return next;
}

// ---- clients ----

void RouterCore::On(Submit& event) {
  const uint64_t call = event.call;
  const absl::Time deadline = event.deadline;
  const int priority = event.sequence.priority();
  std::string wire_id = absl::StrCat(event.request_id, "/", call);
  auto request = std::make_unique<Request>(std::move(event), wire_id);
  absl::Status refused;
  if (shut_down_) {
    refused = absl::UnavailableError("router is shutting down");
  } else if (!AnyLive()) {
    refused = NoWorker();
  } else {
    refused = queue_.Add(call, priority);
  }
  if (!refused.ok()) {
    ClientEnd end = request->End(refused, now_);
    if (absl::IsResourceExhausted(refused)) end.retry_after = queue_.RetryAfter();
    actions_.push_back(std::move(end));
    return;
  }
  if (deadline != absl::InfiniteFuture()) deadlines_.emplace(deadline, call);
  wire_ids_[wire_id] = call;
  requests_[call] = std::move(request);
}

void RouterCore::On(ClientCancel& event) {
  EndCall(event.call, event.why);
}

void RouterCore::On(StopFound& event) {
  EndCall(event.call, absl::OkStatus());
}

void RouterCore::EndCall(uint64_t call, const absl::Status& why) {
  auto it = requests_.find(call);
  if (it == requests_.end()) return;
  Apply(*it->second, it->second->OnEnded(why, now_));
}

void RouterCore::Apply(Request& request, Transition transition) {
  if (transition.ignored) return;
  const AttemptKey key = request.attempt();
  const uint64_t incarnation = request.incarnation();
  if (transition.tokens.has_value()) {
    if (auto load = loads_.find(incarnation); load != loads_.end()) {
      load->second.Generated(key, transition.tokens->token_ids_size());
    }
    actions_.push_back(ClientTokens{request.call(), now_, *std::move(transition.tokens)});
  }
  if (transition.to_worker.has_value()) {
    Send(incarnation, *std::move(transition.to_worker));
    const absl::Duration lease =
        request.lease_time() > absl::ZeroDuration() ? request.lease_time() : options_.registry.lease;
    closing_[key] = {incarnation, now_ + lease};
  }
  if (transition.worker_free) {
    if (auto load = loads_.find(incarnation); load != loads_.end()) load->second.Ended(key);
  }
  if (transition.requeue) queue_.PutBack(request.call(), request.priority(), request.arrival());
  if (transition.end.has_value()) {
    actions_.push_back(request.End(*transition.end, now_));
    Erase(request);
  }
}

void RouterCore::Erase(Request& request) {
  queue_.Remove(request.call());
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
  Lose(*losses);
  if (!known) {
    loads_[event.info.incarnation()] = WorkerLoad(event.info);
    Say(false, absl::StrFormat("worker %s announced: %d blocks, pid %d, incarnation %016x",
                               registry_.Find(event.info.incarnation())->name(), event.info.blocks_total(),
                               event.info.pid(), event.info.incarnation()));
  }
  pb::AnnounceReply reply;
  reply.set_router_incarnation(options_.router_incarnation);
  reply.set_lease_ms(int32_t(absl::ToInt64Milliseconds(options_.registry.lease)));
  reply.set_heartbeat_ms(int32_t(absl::ToInt64Milliseconds(options_.registry.heartbeat)));
  actions_.push_back(AnswerAnnounce{event.session, std::move(reply)});
}

void RouterCore::On(WorkerHeartbeat& event) {
  if (!registry_.Heartbeat(event.session, event.report, now_)) return;
  for (const auto& [incarnation, worker] : registry_.workers()) {
    if (worker.session == event.session) loads_[incarnation].Report(event.report);
  }
}

void RouterCore::On(WorkerLeaving& event) {
  actions_.push_back(CloseAnnounce{event.session, absl::OkStatus()});  // first: it asked for nothing worse
  Lose(registry_.Leaving(event.session, now_));
}

void RouterCore::On(AnnounceLost& event) {
  registry_.AnnounceLost(event.session);
}

void RouterCore::Lose(const std::vector<Registry::Loss>& losses) {
  for (const Registry::Loss& loss : losses) {
    Say(false, absl::StrCat("worker gone: ", loss.why));
    if (loss.link != 0) actions_.push_back(DisconnectWorker{loss.link, loss.why});
    if (loss.session != 0) actions_.push_back(CloseAnnounce{loss.session, absl::UnavailableError(loss.why)});
    LoseRequests(loss.incarnation, loss.why);
    loads_.erase(loss.incarnation);
  }
}

void RouterCore::LoseRequests(uint64_t incarnation, const std::string& why) {
  std::vector<uint64_t> calls;
  for (const auto& [call, request] : requests_) {
    if (request->at_worker() && request->incarnation() == incarnation) calls.push_back(call);
  }
  std::sort(calls.begin(), calls.end());
  for (uint64_t call : calls) {
    Request& request = *requests_[call];
    Apply(request, request.OnWorkerLost(incarnation, why, now_));
  }
  auto load = loads_.find(incarnation);
  for (auto it = closing_.begin(); it != closing_.end();) {
    if (it->second.incarnation == incarnation) {
      if (load != loads_.end()) load->second.Ended(it->first);
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

void RouterCore::On(WorkerBatch& event) {
  WorkerRecord* worker = registry_.FindLink(event.link);
  if (worker == nullptr || !worker->linked) return;
  for (const pb::WorkerEvent& e : event.message.events()) OnWorkerEvent(*worker, e);
  if (event.message.has_report() && registry_.Report(*worker, event.message.report())) {
    loads_[worker->incarnation()].Report(event.message.report());
  }
}

void RouterCore::OnWorkerEvent(WorkerRecord& worker, const pb::WorkerEvent& event) {
  const uint64_t incarnation = worker.incarnation();
  WorkerLoad& load = loads_[incarnation];
  const AttemptKey key{event.key().request_id(), event.key().attempt()};
  if (auto it = closing_.find(key); it != closing_.end() && it->second.incarnation == incarnation) {
    if (event.has_failed() || event.has_refused() || (event.has_finished() && event.finished().last())) {
      load.Ended(key);
      closing_.erase(it);
    }
    return;
  }
  auto wire = wire_ids_.find(key.first);
  if (wire == wire_ids_.end()) return;
  Request& request = *requests_[wire->second];
  const Origin from{incarnation, key.second};
  switch (event.event_case()) {
    case pb::WorkerEvent::kLeaseGranted: {
      Transition transition = request.OnGranted(from, event.lease_granted(), now_);
      if (transition.ignored) return;
      load.Granted(key);
      Renewal& renewal = renewals_[incarnation];
      if (request.lease_time() > absl::ZeroDuration()) renewal.lease = std::min(renewal.lease, request.lease_time());
      renewal.at = std::min(renewal.at, now_ + renewal.lease / 3);
      return Apply(request, std::move(transition));
    }
    case pb::WorkerEvent::kRefused: {
      Transition transition = request.OnRefused(from, event.refused(), now_);
      if (transition.requeue && event.refused().error().reason() != pb::NEVER_FITS) {
        load.Refused(key, event.refused().blocks_free());
        transition.worker_free = false;
      }
      Say(true, absl::StrFormat("%s refused %s: %s", worker.name(), key.first, event.refused().error().message()));
      return Apply(request, std::move(transition));
    }
    case pb::WorkerEvent::kTokens:
      return Apply(request, request.OnTokens(from, event.tokens(), now_));
    case pb::WorkerEvent::kFailed:
      return Apply(request, request.OnFailed(from, event.failed(), now_));
    case pb::WorkerEvent::kFinished:
      return Apply(request, request.OnFinished(from, event.finished(), now_));
    case pb::WorkerEvent::kProgress:
      return Apply(request, request.OnProgress(from, event.progress()));
    case pb::WorkerEvent::kCommitted:  // of a pair of workers; `both` hands nothing over
    case pb::WorkerEvent::EVENT_NOT_SET:
      return;
  }
}

// ---- what follows ----

void RouterCore::Advance() {
  if (!shut_down_) {
    Lose(registry_.Advance(now_));
    Connect();
  }
  ExpireDeadlines();
  ExpireClosing();
  RenewLeases();
  PlaceQueued();
  PublishPool();
}

void RouterCore::Connect() {
  for (auto& [incarnation, worker] : registry_.workers()) {
    if (worker.state == pb::WORKER_STATE_GONE || worker.link != 0 || worker.connect_at > now_) continue;
    const uint64_t link = next_link_++;
    registry_.Connecting(worker, link);
    actions_.push_back(ConnectWorker{link, incarnation, worker.info.work()});
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
  for (auto it = closing_.begin(); it != closing_.end();) {
    if (it->second.forget_at > now_) {
      ++it;
      continue;
    }
    if (auto load = loads_.find(it->second.incarnation); load != loads_.end()) load->second.Ended(it->first);
    it = closing_.erase(it);
  }
}

void RouterCore::RenewLeases() {
  for (auto it = renewals_.begin(); it != renewals_.end();) {
    auto& [incarnation, renewal] = *it;
    if (renewal.at > now_) {
      ++it;
      continue;
    }
    pb::RouterMessage message;
    for (const auto& [call, request] : requests_) {
      if (request->at_worker() && request->incarnation() == incarnation && request->lease() != 0) {
        message.mutable_renew()->add_lease_ids(request->lease());
      }
    }
    if (!message.has_renew()) {
      it = renewals_.erase(it);
      continue;
    }
    std::sort(message.mutable_renew()->mutable_lease_ids()->begin(),
              message.mutable_renew()->mutable_lease_ids()->end());
    renewal.at = now_ + renewal.lease / 3;
    Send(incarnation, std::move(message));
    ++it;
  }
}

void RouterCore::PlaceQueued() {
  while (!queue_.empty() && PlaceHead()) {
  }
}

// True when the head left the queue.
bool RouterCore::PlaceHead() {
  Request& request = *requests_[queue_.Head().call];
  std::vector<Candidate> candidates;
  for (const auto& [incarnation, worker] : registry_.workers()) {
    const bool active = worker.state == pb::WORKER_STATE_ACTIVE;
    if (!active && worker.state != pb::WORKER_STATE_SUSPECT) continue;
    candidates.push_back(
        {incarnation, worker.name(), &loads_[incarnation], active, request.RefusedForEver(incarnation)});
  }
  const Placement placement = Place(candidates, request.demand(), options_.explain, rng_);
  switch (placement.kind) {
    case Placement::Kind::kPlace: {
      request.Queued(queue_.TakeHead(now_).arrival);
      const WorkerRecord& worker = *registry_.Find(placement.incarnation);
      if (options_.explain) {
        Say(true, absl::StrCat("place ", request.wire_id(), " on ", worker.name(), ": ", placement.explanation));
      }
      pb::RouterMessage message = request.Dispatch(placement.incarnation, worker.name(), now_);
      loads_[placement.incarnation].Dispatched(request.attempt(), request.demand());
      Send(placement.incarnation, std::move(message));
      return true;
    }
    case Placement::Kind::kWait:
      return false;
    case Placement::Kind::kNever:
      EndCall(request.call(), absl::InvalidArgumentError(absl::StrCat("sampling.max_tokens: ", placement.explanation)));
      return true;
    case Placement::Kind::kNoWorker:
      EndCall(request.call(), NoWorker());
      return true;
  }
  return false;
}

void RouterCore::PublishPool() {
  PoolChanged pool;
  for (const auto& [incarnation, worker] : registry_.workers()) {
    if (worker.state == pb::WORKER_STATE_ACTIVE) pool.serving = !shut_down_;
    if (worker.state != pb::WORKER_STATE_GONE) {
      pool.token_capacity =
          std::max(pool.token_capacity, int(std::min<int64_t>(1 << 30, TokenCapacity(loads_[incarnation]))));
    }
  }
  if (pool.serving == published_.serving && pool.token_capacity == published_.token_capacity) return;
  published_ = pool;
  actions_.push_back(pool);
}

bool RouterCore::AnyLive() const {
  return std::any_of(registry_.workers().begin(), registry_.workers().end(), [](const auto& entry) {
    return entry.second.state == pb::WORKER_STATE_ACTIVE || entry.second.state == pb::WORKER_STATE_SUSPECT;
  });
}

void RouterCore::Send(uint64_t incarnation, pb::RouterMessage message) {
  const WorkerRecord* worker = registry_.Find(incarnation);
  if (worker == nullptr || worker->link == 0) return;  // the loss of the link is on its way
  actions_.push_back(SendToWorker{worker->link, std::move(message)});
}

void RouterCore::Say(bool debug, std::string text) {
  if (!debug || options_.explain) actions_.push_back(Note{debug, std::move(text)});
}

pb::ClusterState RouterCore::State() const {
  pb::ClusterState state;
  state.set_model(options_.registry.model);
  state.set_router_version(options_.version);
  state.set_router_incarnation(options_.router_incarnation);
  state.set_queued(queue_.size());
  state.set_running(int(requests_.size()) - queue_.size());
  state.set_context_length(options_.context_length);
  for (const auto& [incarnation, worker] : registry_.workers()) {
    pb::WorkerStatus& status = *state.add_workers();
    status.set_role(worker.info.role());
    status.set_pid(worker.info.pid());
    status.set_port(worker.info.work().port());
    status.set_host(worker.info.work().host());
    status.set_state(worker.state);
    status.set_incarnation(incarnation);
    status.set_model(worker.info.model());
    status.set_numerics(worker.info.fingerprint().numerics());
    status.set_blocks_total(worker.info.blocks_total());
    const bool reported = worker.report.sequence() != 0;
    status.set_blocks_free(reported ? worker.report.blocks_free() : worker.info.blocks_total());
    status.set_running(worker.report.running());
    status.set_waiting(worker.report.waiting());
  }
  return state;
}

RouterCore::Sizes RouterCore::sizes() const {
  Sizes sizes{int(requests_.size()),  int(wire_ids_.size()), queue_.size(),
              int(deadlines_.size()), int(closing_.size()),  0};
  for (const auto& [incarnation, load] : loads_) sizes.attempts += load.attempts();
  return sizes;
}

}  // namespace sluice::router
