#include "worker/worker_core.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/error_info.h"
#include "worker/sequence_spec.h"

namespace sluice::worker {

WorkerCore::WorkerCore(const CoreOptions& options, EnginePort& engine, RequestTable& requests, Role& role)
    : options_(options), engine_(engine), requests_(requests), role_(role) {}

void WorkerCore::OnMessage(StreamId id, const v1::RouterMessage& message, absl::Time received) {
  now_ = std::max(now_, received);
  Stream& stream = streams_[id];
  if (stream.state == Stream::kClosed) return;
  if (stream.state == Stream::kNew && !message.has_hello()) {
    Close(id, stream, absl::FailedPreconditionError("the first message of a Work stream must be a RouterHello"));
    return;
  }
  switch (message.message_case()) {
    case v1::RouterMessage::kHello:
      return OnHello(id, stream, message.hello());
    case v1::RouterMessage::kReserve:
      return OnReserve(id, message.reserve(), received);
    case v1::RouterMessage::kPrefill:
      return OnPrefill(id, message.prefill(), received);
    case v1::RouterMessage::kCancel:
      return OnCancel(id, message.cancel());
    case v1::RouterMessage::kRelease:
      return OnRelease(id, message.release());
    case v1::RouterMessage::kRenew:
      return OnRenew(id, message.renew(), received);
    case v1::RouterMessage::kDrain:
      Drain();
      if (message.drain().hand_over()) EndAll(MakeError(v1::DRAINING_WORKER, "this worker hands its requests over"));
      return;
    case v1::RouterMessage::kReplayPrefixes:
      return stream.prefixes.Restart();
    case v1::RouterMessage::MESSAGE_NOT_SET:
      return;  // a kind that a newer router knows
  }
}

void WorkerCore::OnHello(StreamId id, Stream& stream, const v1::RouterHello& hello) {
  if (stream.state == Stream::kOpen) {
    return Close(id, stream, absl::FailedPreconditionError("a second RouterHello on one Work stream"));
  }
  if (!options_.key.Accepts(hello.auth(), "work", {hello.router_incarnation(), hello.worker_incarnation()})) {
    return Close(id, stream,
                 absl::UnauthenticatedError(
                     "the router does not have this cluster's key; give it and all workers the same --cluster-key"));
  }
  if (hello.worker_incarnation() != options_.incarnation) {
    return Close(id, stream,
                 absl::FailedPreconditionError(absl::StrCat("STALE_INCARNATION: this worker is incarnation ",
                                                            options_.incarnation, ", the router means ",
                                                            hello.worker_incarnation())));
  }
  // A router that reconnects may be here before its old connection is known to be dead.
  if (hello.router_incarnation() != 0) {
    for (auto& [other_id, other] : streams_) {
      if (other_id != id && other.state == Stream::kOpen && other.router_incarnation == hello.router_incarnation()) {
        Close(other_id, other, absl::AbortedError("replaced by a newer Work stream of the same router"));
      }
    }
  }
  stream.state = Stream::kOpen;
  stream.router_incarnation = hello.router_incarnation();
  v1::WorkerHello* answer = requests_.PendingOf(id).message.mutable_hello();
  answer->set_worker_incarnation(options_.incarnation);
  answer->set_protocol_version(kProtocolVersion);
  answer->set_auth(options_.key.Proof("work answer", {hello.router_incarnation(), options_.incarnation}));
}

void WorkerCore::OnReserve(StreamId id, const v1::Reserve& reserve, absl::Time received) {
  if (WaitsForItsTurn(id, reserve.key())) return;
  v1::LeaseGranted granted;
  uint64_t lease = 0;
  std::optional<v1::ErrorInfo> error =
      Admit({.stream = id, .key = reserve.key(), .received = received}, reserve.sequence(), reserve.remaining_ms(),
            [&](uint64_t new_id, engine::EngineRequest request) {
              lease = new_id;
              return role_.Admit(new_id, reserve, std::move(request), granted);
            });
  TookTurn(id, error);
  if (error) return Refuse(id, reserve.key(), *std::move(error));
  granted.set_lease_id(lease);
  granted.set_lease_ms(static_cast<int32_t>(absl::ToInt64Milliseconds(requests_.lease_term())));
  *requests_.NewEvent(lease)->mutable_lease_granted() = std::move(granted);
}

// No lease of its own: its work ends by itself, and the decode side's lease is what a silent router lets expire.
void WorkerCore::OnPrefill(StreamId id, const v1::Prefill& prefill, absl::Time received) {
  if (WaitsForItsTurn(id, prefill.key())) return;
  std::optional<v1::ErrorInfo> error = Admit(
      {.stream = id, .key = prefill.key(), .received = received, .leased = false}, prefill.sequence(),
      prefill.remaining_ms(),
      [&](uint64_t new_id, engine::EngineRequest request) { return role_.Admit(new_id, prefill, std::move(request)); });
  TookTurn(id, error);
  if (error) Refuse(id, prefill.key(), *std::move(error));
}

bool WorkerCore::WaitsForItsTurn(StreamId id, const v1::RequestKey& key) {
  if (draining_ || turns_.Mine(id)) return false;
  turns_.RefusedByTurn(id);
  Refuse(id, key,
         MakeError(v1::NO_BLOCKS, "the next free KV blocks are those of another router, which waits for them"));
  return true;
}

void WorkerCore::TookTurn(StreamId id, const std::optional<v1::ErrorInfo>& error) {
  if (error && error->reason() == v1::NO_BLOCKS) {
    turns_.RefusedByLack(id, engine_.stats().blocks_free);
  } else {
    turns_.Used(id);
  }
}

// A router that does not hear of them from a request of its own would hear of them with a heartbeat.
void WorkerCore::TellOfFreeBlocks() {
  const int64_t free = engine_.stats().blocks_free;
  if (const StreamId next = turns_.Tell(free, now_); next != 0) requests_.PendingOf(next);
  for (auto& [id, stream] : streams_) {
    if (stream.state != Stream::kOpen) continue;
    if (free > stream.known_free && streams_.size() > 1) requests_.PendingOf(id);
    stream.known_free = free;
  }
}

std::optional<v1::ErrorInfo> WorkerCore::CheckNew(StreamId id, const v1::RequestKey& key, int64_t remaining_ms) const {
  if (key.request_id().empty()) return MakeError(v1::INVALID_REQUEST, "key.request_id: is empty");
  if (requests_.Find(id, key) != 0) {
    return MakeError(v1::INVALID_REQUEST, absl::StrCat("key: request ", key.request_id(), " attempt ", key.attempt(),
                                                       " is running here already"));
  }
  if (draining_) return MakeError(v1::DRAINING_WORKER, "this worker is draining: send the request to another one");
  if (remaining_ms < 0) return MakeError(v1::DEADLINE, "the deadline passed before the request came here");
  return std::nullopt;
}

std::optional<v1::ErrorInfo> WorkerCore::Admit(RequestTable::Arrival arrival, const v1::SequenceSpec& spec,
                                               int64_t remaining_ms, const AdmitByRole& admit) {
  if (auto error = CheckNew(arrival.stream, arrival.key, remaining_ms)) return error;
  absl::StatusOr<engine::EngineRequest> request = ToEngineRequest(spec, options_.vocab);
  if (!request.ok()) return MakeError(v1::INVALID_REQUEST, std::string(request.status().message()));
  if (remaining_ms > 0) arrival.deadline = arrival.received + absl::Milliseconds(remaining_ms);
  arrival.logprobs = request->sampling.logprobs >= 0;
  const uint64_t id = requests_.Add(std::move(arrival));
  request->id = id;
  std::optional<v1::ErrorInfo> error = admit(id, *std::move(request));
  if (error) requests_.Forget(id);
  return error;
}

// Not an end of anything: a running request of the same key goes on.
void WorkerCore::Refuse(StreamId id, const v1::RequestKey& key, v1::ErrorInfo error) {
  v1::Refused* refused = requests_.NewEvent(id, key)->mutable_refused();
  *refused->mutable_error() = std::move(error);
  refused->set_blocks_free(engine_.stats().blocks_free);
}

void WorkerCore::OnCancel(StreamId id, const v1::Cancel& cancel) {
  const uint64_t request = requests_.Find(id, cancel.key());
  if (request == 0) return;  // over already: its end is on the way to the router
  const v1::ErrorInfo why = MakeError(v1::CANCELLED_BY_CLIENT, cancel.why().empty() ? "cancelled" : cancel.why());
  End(request, why, why);
}

void WorkerCore::OnRelease(StreamId id, const v1::Release& release) {
  const uint64_t request = requests_.Find(id, release.key());
  if (request == 0 || request != release.lease_id()) return;
  End(request, MakeError(v1::CANCELLED_BY_CLIENT, "the lease was released"), std::nullopt);
}

void WorkerCore::OnRenew(StreamId id, const v1::Renew& renew, absl::Time received) {
  for (const uint64_t lease : renew.lease_ids()) requests_.Renew(id, lease, received);
}

void WorkerCore::OnStreamEnd(StreamId id) {
  if (streams_.erase(id) == 0) return;
  turns_.Ended(id);
  DropRequestsOf(id);
  requests_.DropPending(id);
}

void WorkerCore::Tick(absl::Time now) {
  now_ = std::max(now_, now);
  turns_.Advance(now);
  for (const uint64_t id : requests_.TakeOverdue(now)) {
    const v1::ErrorInfo why = MakeError(v1::DEADLINE, "the request's deadline passed");
    End(id, why, why);
  }
  for (const uint64_t id : requests_.TakeExpired(now)) {
    const v1::ErrorInfo why = MakeError(v1::LEASE_EXPIRED, "the router did not renew the lease");
    End(id, why, why);
  }
}

absl::Status WorkerCore::Step(const std::function<absl::Time()>& clock) {
  std::unique_ptr<engine::StepWork> step = engine_.Begin();
  if (step == nullptr) return absl::OkStatus();
  if (absl::Status status = engine_.Execute(*step); !status.ok()) return status;
  CommitStep(std::move(step), clock());
  return absl::OkStatus();
}

std::unique_ptr<engine::StepWork> WorkerCore::BeginStep() {
  std::unique_ptr<engine::StepWork> step = engine_.Begin();
  if (step != nullptr) role_.OnPlanned(*step);
  return step;
}

void WorkerCore::CommitStep(std::unique_ptr<engine::StepWork> step, absl::Time now) {
  const std::vector<engine::TokenOutput> outputs = engine_.Commit(std::move(step));
  // The engine says them with choice 0, which need not be the first of its choices in the step.
  for (const engine::TokenOutput& output : outputs) requests_.KeepPrompt(output);
  role_.OnStep(outputs, engine_.progress(), now);
}

void WorkerCore::EndAll(const v1::ErrorInfo& error) {
  for (const uint64_t id : requests_.All()) End(id, error, error);
}

void WorkerCore::FailAll(const v1::ErrorInfo& error) {
  Drain();
  for (const uint64_t id : requests_.All()) {
    End(id, error, error);
    if (requests_.Has(id)) requests_.SayNow(id);
  }
}

void WorkerCore::End(uint64_t id, const v1::ErrorInfo& why, const LastWords& words) {
  if (requests_.ending(id)) return;
  if (role_.Stop(id, why)) {
    requests_.EndNow(id, words);
  } else {
    requests_.EndLater(id, words);
  }
}

void WorkerCore::DropRequestsOf(StreamId id) {
  const v1::ErrorInfo why = MakeError(v1::CANCELLED_BY_CLIENT, "the router's stream has ended");
  for (const uint64_t request : requests_.OfStream(id)) {
    if (requests_.ending(request)) {
      requests_.Silence(request);
    } else {
      End(request, why, std::nullopt);
    }
  }
}

void WorkerCore::Close(StreamId id, Stream& stream, absl::Status status) {
  turns_.Ended(id);
  DropRequestsOf(id);
  stream.state = Stream::kClosed;
  requests_.PendingOf(id).close = std::move(status);
}

std::vector<Outgoing> WorkerCore::TakeOutgoing() {
  TellOfFreeBlocks();
  std::vector<Outgoing> taken = requests_.TakeOutgoing();
  AddPrefixes(taken);
  for (Outgoing& outgoing : taken) {
    if (!outgoing.close) *outgoing.message.mutable_report() = Report();
  }
  return taken;
}

void WorkerCore::AddPrefixes(std::vector<Outgoing>& outgoing) {
  const engine::PrefixCache* cache = engine_.prefix_cache();
  if (cache == nullptr) return;
  for (auto& [id, stream] : streams_) {
    if (stream.state != Stream::kOpen) continue;
    v1::PrefixEvents events = stream.prefixes.Next(*cache);
    if (events.events().empty()) continue;
    auto to = std::find_if(outgoing.begin(), outgoing.end(), [&](const Outgoing& o) { return o.stream == id; });
    if (to == outgoing.end()) {
      to = outgoing.insert(outgoing.end(), Outgoing());
      to->stream = id;
    }
    *to->message.mutable_prefixes() = std::move(events);
  }
}

v1::WorkerReport WorkerCore::Report() const {
  const engine::EngineStats stats = engine_.stats();
  v1::WorkerReport report;
  report.set_blocks_free(stats.blocks_free);
  report.set_running(stats.running);
  report.set_waiting(stats.waiting);
  report.set_waiting_tokens(stats.waiting_tokens);
  report.set_steps(stats.steps);
  report.set_draining(draining_);
  v1::EngineCounters& engine = *report.mutable_engine();
  engine.set_steps(stats.steps);
  engine.set_rows(stats.rows);
  engine.set_preemptions(stats.preemptions);
  engine.set_block_copies(stats.block_copies);
  engine.set_looked_up_tokens(stats.prefix.looked_up_tokens);
  engine.set_hit_tokens(stats.prefix.hit_tokens);
  engine.set_evicted_blocks(stats.prefix.evicted_blocks);
  engine.set_cached_blocks(stats.cached_blocks);
  engine.set_drafted_tokens(stats.drafted);
  engine.set_accepted_tokens(stats.accepted_drafts);
  engine.set_plan_seconds(stats.plan_seconds);
  engine.set_execute_seconds(stats.execute_seconds);
  engine.set_sample_seconds(stats.sample_seconds);
  engine.set_commit_seconds(stats.commit_seconds);
  engine.set_bytes_to_host(uint64_t(stats.bytes_to_host));
  engine.set_steps_ahead(stats.steps_ahead);
  return report;
}

}  // namespace sluice::worker
