#include "worker/worker_core.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/error_info.h"
#include "worker/sequence_spec.h"

namespace sluice::worker {
namespace {

v1::FinishReason ToWire(engine::FinishReason reason) {
  return reason == engine::FinishReason::kStop ? v1::FINISH_REASON_STOP : v1::FINISH_REASON_LENGTH;
}

// The tokens' bytes stay empty: a worker knows no text.
void FillLogprobs(const engine::Sampled& sampled, v1::TokenLogprobs* to) {
  to->mutable_sampled()->set_token_id(sampled.token);
  to->mutable_sampled()->set_logprob(sampled.logprob);
  for (const auto& [token, logprob] : sampled.top) {
    v1::TokenLogprob* top = to->add_top();
    top->set_token_id(token);
    top->set_logprob(logprob);
  }
}

}  // namespace

WorkerCore::WorkerCore(const CoreOptions& options, EnginePort& engine)
    : options_(options), engine_(engine), leases_(options.lease_term) {}

void WorkerCore::OnMessage(StreamId id, const v1::RouterMessage& message, absl::Time received) {
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
      return OnPrefill(id, message.prefill());
    case v1::RouterMessage::kCancel:
      return OnCancel(id, message.cancel());
    case v1::RouterMessage::kRelease:
      return OnRelease(id, message.release());
    case v1::RouterMessage::kRenew:
      return OnRenew(id, message.renew(), received);
    case v1::RouterMessage::kDrain:
      return Drain();
    case v1::RouterMessage::MESSAGE_NOT_SET:
      return;  // a kind that a newer router knows
  }
}

void WorkerCore::OnHello(StreamId id, Stream& stream, const v1::RouterHello& hello) {
  if (stream.state == Stream::kOpen) {
    return Close(id, stream, absl::FailedPreconditionError("a second RouterHello on one Work stream"));
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
  v1::WorkerHello* answer = PendingOf(id).message.mutable_hello();
  answer->set_worker_incarnation(options_.incarnation);
  answer->set_protocol_version(kProtocolVersion);
}

void WorkerCore::OnReserve(StreamId id, const v1::Reserve& reserve, absl::Time received) {
  std::optional<v1::ErrorInfo> error = TryAdmit(id, reserve, received);
  if (!error) return;
  v1::Refused* refused = NewEvent(id, reserve.key())->mutable_refused();
  *refused->mutable_error() = *std::move(error);
  refused->set_blocks_free(engine_.stats().blocks_free);
}

std::optional<v1::ErrorInfo> WorkerCore::TryAdmit(StreamId id, const v1::Reserve& reserve, absl::Time received) {
  const v1::RequestKey& key = reserve.key();
  if (key.request_id().empty()) return MakeError(v1::INVALID_REQUEST, "key.request_id: is empty");
  if (FindRequest(id, key) != 0) {
    return MakeError(v1::INVALID_REQUEST, absl::StrCat("key: request ", key.request_id(), " attempt ", key.attempt(),
                                                       " is running here already"));
  }
  if (draining_) return MakeError(v1::DRAINING_WORKER, "this worker is draining: send the request to another one");
  if (!reserve.compute_prompt()) return MakeError(v1::INCOMPATIBLE, "this worker serves role both only");
  if (reserve.remaining_ms() < 0) return MakeError(v1::DEADLINE, "the deadline passed before the request came here");

  absl::StatusOr<engine::EngineRequest> request = ToEngineRequest(reserve.sequence(), options_.vocab);
  if (!request.ok()) return MakeError(v1::INVALID_REQUEST, std::string(request.status().message()));

  const uint64_t lease = leases_.Grant(received);
  const bool logprobs = request->sampling.logprobs >= 0;
  request->id = lease;
  if (absl::Status added = engine_.Add(*std::move(request)); !added.ok()) {
    leases_.Release(lease);
    return ErrorOfRefusedAdd(added);
  }
  Request& live = requests_[lease];
  live.stream = id;
  live.key = key;
  live.logprobs = logprobs;
  if (reserve.remaining_ms() > 0) {
    live.deadline = received + absl::Milliseconds(reserve.remaining_ms());
    deadlines_.emplace(live.deadline, lease);
  }
  by_key_.emplace(KeyOfStream{id, key.request_id(), key.attempt()}, lease);
  streams_[id].requests.insert(lease);
  v1::LeaseGranted* granted = NewEvent(id, key)->mutable_lease_granted();
  granted->set_lease_id(lease);
  granted->set_lease_ms(static_cast<int32_t>(absl::ToInt64Milliseconds(options_.lease_term)));
  return std::nullopt;
}

// Not an end of anything: a running request of the same key goes on.
void WorkerCore::OnPrefill(StreamId id, const v1::Prefill& prefill) {
  v1::Refused* refused = NewEvent(id, prefill.key())->mutable_refused();
  *refused->mutable_error() =
      MakeError(v1::INCOMPATIBLE, "this worker serves role both only: ask with Reserve and compute_prompt");
  refused->set_blocks_free(engine_.stats().blocks_free);
}

void WorkerCore::OnCancel(StreamId id, const v1::Cancel& cancel) {
  const uint64_t lease = FindRequest(id, cancel.key());
  if (lease == 0) return;  // over already: its end is on the way to the router
  Fail(lease, MakeError(v1::CANCELLED_BY_CLIENT, cancel.why().empty() ? "cancelled" : cancel.why()));
}

void WorkerCore::OnRelease(StreamId id, const v1::Release& release) {
  const uint64_t lease = FindRequest(id, release.key());
  if (lease == 0 || lease != release.lease_id()) return;
  engine_.Cancel(lease);
  Forget(lease);
}

void WorkerCore::OnRenew(StreamId id, const v1::Renew& renew, absl::Time received) {
  for (const uint64_t lease : renew.lease_ids()) {
    auto it = requests_.find(lease);
    if (it != requests_.end() && it->second.stream == id) leases_.Renew(lease, received);
  }
}

void WorkerCore::OnStreamEnd(StreamId id) {
  auto it = streams_.find(id);
  if (it == streams_.end()) return;
  DropRequestsOf(it->second);
  streams_.erase(it);
  pending_.erase(id);
}

void WorkerCore::Tick(absl::Time now) {
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    Fail(deadlines_.begin()->second, MakeError(v1::DEADLINE, "the request's deadline passed"));
  }
  for (const uint64_t lease : leases_.Expire(now)) {
    Fail(lease, MakeError(v1::LEASE_EXPIRED, "the router did not renew the lease"));
  }
}

absl::Status WorkerCore::Step() {
  absl::StatusOr<std::vector<engine::TokenOutput>> outputs = engine_.Step();
  if (!outputs.ok()) return outputs.status();
  EventOfRequest events;
  for (const engine::TokenOutput& output : *outputs) Emit(output, events);
  return absl::OkStatus();
}

void WorkerCore::Emit(const engine::TokenOutput& output, EventOfRequest& events) {
  auto it = requests_.find(output.id);
  if (it == requests_.end()) return;
  AppendTokens(output.id, output, events);
  if (output.finish == engine::FinishReason::kNone) return;
  v1::Finished* finished = NewEvent(it->second.stream, it->second.key)->mutable_finished();
  finished->set_choice(output.choice);
  finished->set_reason(ToWire(output.finish));
  finished->set_last(true);
  Forget(output.id);
}

// Several tokens of one request in one step share an event.
void WorkerCore::AppendTokens(uint64_t id, const engine::TokenOutput& output, EventOfRequest& events) {
  const Request& request = requests_.at(id);
  v1::Tokens*& tokens = events[id];
  if (tokens == nullptr) {
    tokens = NewEvent(request.stream, request.key)->mutable_tokens();
    tokens->set_choice(output.choice);
    tokens->set_first_index(output.index);
  }
  tokens->add_token_ids(output.sampled.token);
  if (request.logprobs) FillLogprobs(output.sampled, tokens->add_logprobs());
}

void WorkerCore::FailAll(const v1::ErrorInfo& error) {
  Drain();
  while (!requests_.empty()) Fail(requests_.begin()->first, error);
}

void WorkerCore::Forget(uint64_t id) {
  auto it = requests_.find(id);
  const Request& request = it->second;
  leases_.Release(id);
  deadlines_.erase({request.deadline, id});
  by_key_.erase(KeyOfStream{request.stream, request.key.request_id(), request.key.attempt()});
  if (auto stream = streams_.find(request.stream); stream != streams_.end()) stream->second.requests.erase(id);
  requests_.erase(it);
}

void WorkerCore::Fail(uint64_t id, const v1::ErrorInfo& error) {
  engine_.Cancel(id);
  const Request& request = requests_.at(id);
  *NewEvent(request.stream, request.key)->mutable_failed()->mutable_error() = error;
  Forget(id);
}

void WorkerCore::DropRequestsOf(Stream& stream) {
  while (!stream.requests.empty()) {
    const uint64_t id = *stream.requests.begin();
    engine_.Cancel(id);
    Forget(id);
  }
}

void WorkerCore::Close(StreamId id, Stream& stream, absl::Status status) {
  DropRequestsOf(stream);
  stream.state = Stream::kClosed;
  PendingOf(id).close = std::move(status);
}

uint64_t WorkerCore::FindRequest(StreamId stream, const v1::RequestKey& key) const {
  auto it = by_key_.find(KeyOfStream{stream, key.request_id(), key.attempt()});
  return it == by_key_.end() ? 0 : it->second;
}

v1::WorkerEvent* WorkerCore::NewEvent(StreamId stream, const v1::RequestKey& key) {
  v1::WorkerEvent* event = PendingOf(stream).message.add_events();
  *event->mutable_key() = key;
  return event;
}

Outgoing& WorkerCore::PendingOf(StreamId stream) {
  Outgoing& pending = pending_[stream];
  pending.stream = stream;
  return pending;
}

std::vector<Outgoing> WorkerCore::TakeOutgoing() {
  std::vector<Outgoing> taken;
  taken.reserve(pending_.size());
  for (auto& [id, pending] : pending_) {
    if (!pending.close) *pending.message.mutable_report() = Report();
    taken.push_back(std::move(pending));
  }
  pending_.clear();
  return taken;
}

absl::Time WorkerCore::NextTimer() const {
  const absl::Time deadline = deadlines_.empty() ? absl::InfiniteFuture() : deadlines_.begin()->first;
  return std::min(deadline, leases_.NextExpiry());
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
  return report;
}

}  // namespace sluice::worker
