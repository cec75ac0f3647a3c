#include "simulation/model_worker.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace sluice::simulation {
namespace {

pb::ErrorInfo Error(pb::ErrorReason reason, absl::StatusCode code, const std::string& message) {
  return MakeError(reason, int(code), message);
}
pb::ErrorInfo Cancelled(const std::string& why) {
  return Error(pb::CANCELLED_BY_CLIENT, absl::StatusCode::kCancelled, why);
}
pb::ErrorInfo PeerLost() {
  return Error(pb::WORKER_LOST, absl::StatusCode::kUnavailable, "the pair has ended");
}

constexpr absl::Duration kLate = absl::Seconds(1);
constexpr absl::Duration kGrace = absl::Seconds(1);

}  // namespace

ModelWorker::ModelWorker(uint64_t incarnation, const WorkerModel& model, WorkerSurroundings& world, Schedule& schedule,
                         Rng& rng)
    : incarnation_(incarnation), model_(model), world_(world), schedule_(schedule), rng_(rng) {}

void ModelWorker::At(absl::Time at, Schedule::What what) {
  schedule_.At(at, [this, alive = std::weak_ptr<bool>(alive_), what = std::move(what)]() mutable {
    if (alive.expired()) return;
    if (const absl::Time until = world_.FrozenUntil(*this); until > schedule_.now()) return At(until, std::move(what));
    what();
  });
}

// ---- messages ----

void ModelWorker::OnMessage(uint64_t stream, const pb::RouterMessage& message) {
  if (message.has_hello()) return OnHello(stream, message.hello());
  if (!streams_.contains(stream)) return;
  if (message.has_reserve()) {
    OnReserve(stream, message.reserve());
  } else if (message.has_prefill()) {
    OnPrefill(stream, message.prefill());
  } else if (message.has_cancel()) {
    ModelJob* job = Find(stream, message.cancel().key());
    if (job != nullptr) Stop(*job, Cancelled(message.cancel().why()), true);
  } else if (message.has_release()) {
    ModelJob* job = Find(stream, message.release().key());
    if (job != nullptr && job->id == message.release().lease_id()) Stop(*job, Cancelled("released"), false);
  } else if (message.has_renew()) {
    for (uint64_t id : message.renew().lease_ids()) {
      const auto it = jobs_.find(id);
      if (it == jobs_.end() || it->second.stream != stream || it->second.state == ModelJob::kLeaving) continue;
      it->second.expires = std::max(it->second.expires, schedule_.now() + model_.lease);
    }
  } else if (message.has_drain()) {
    Drain(message.drain().hand_over());
  } else if (message.has_replay_prefixes()) {
    cache_.Begin();
  }
  Flush();
  MaybeStep();
}

void ModelWorker::OnHello(uint64_t stream, const pb::RouterHello& hello) {
  if (hello.worker_incarnation() != incarnation_) {
    return world_.CloseStream(*this, stream, absl::FailedPreconditionError("STALE_INCARNATION"));
  }
  for (uint64_t other : std::exchange(streams_, {})) {  // there is one router
    DropRequestsOf(other);
    out_.erase(other);
    world_.CloseStream(*this, other, absl::AbortedError("replaced by a newer Work stream of the same router"));
  }
  streams_.insert(stream);
  cache_.Begin();
  out_[stream].mutable_hello()->set_worker_incarnation(incarnation_);
  Flush();
}

void ModelWorker::OnStreamEnd(uint64_t stream) {
  if (streams_.erase(stream) == 0) return;
  DropRequestsOf(stream);
  out_.erase(stream);
  cache_.NobodyListens();
}

void ModelWorker::DropRequestsOf(uint64_t stream) {
  std::vector<uint64_t> ids;
  for (const auto& [id, job] : jobs_) {
    if (job.stream == stream) ids.push_back(id);
  }
  for (uint64_t id : ids) {
    ModelJob& job = jobs_.at(id);
    if (job.state == ModelJob::kLeaving) {
      job.says = false;
      by_key_.erase({stream, {job.key.request_id(), job.key.attempt()}});
    } else {
      Stop(job, Cancelled("the router's stream has ended"), false);
    }
  }
}

ModelJob* ModelWorker::Find(uint64_t stream, const pb::RequestKey& key) {
  const auto it = by_key_.find({stream, {key.request_id(), key.attempt()}});
  return it == by_key_.end() ? nullptr : &jobs_.at(it->second);
}

bool ModelWorker::CheckNew(uint64_t stream, const pb::RequestKey& key, int64_t remaining_ms) {
  if (Find(stream, key) != nullptr) {
    Refuse(stream, key, Error(pb::INVALID_REQUEST, absl::StatusCode::kInvalidArgument, "key: is running here already"));
  } else if (draining_) {
    Refuse(stream, key, Error(pb::DRAINING_WORKER, absl::StatusCode::kUnavailable, "this worker is draining"));
  } else if (remaining_ms < 0) {
    Refuse(stream, key, Error(pb::DEADLINE, absl::StatusCode::kDeadlineExceeded, "the deadline has passed"));
  } else if (rng_.OneIn(model_.refuse_one_in)) {
    Refuse(stream, key, Error(pb::OVERLOADED, absl::StatusCode::kResourceExhausted, "another router was faster"));
  } else {
    return true;
  }
  return false;
}

ModelJob ModelWorker::NewJob(uint64_t stream, const pb::RequestKey& key, const pb::SequenceSpec& spec,
                             int64_t remaining_ms) {
  ModelJob job;
  job.stream = stream;
  job.key = key;
  job.tokens = spec.tokens_size();
  job.prompt_tokens = spec.num_prompt_tokens();
  job.max_tokens = spec.sampling().max_tokens();
  job.prompt_logprobs = spec.sampling().has_prompt_logprobs();
  job.logprobs = spec.sampling().has_logprobs();
  job.received = schedule_.now();
  if (remaining_ms > 0) job.deadline = schedule_.now() + absl::Milliseconds(remaining_ms);
  if (model_.caches_prefixes) job.names = NamesOf(spec, model_.block_size);
  const int n = std::max(1, spec.sampling().n());
  for (int i = 0; i < n; ++i) {
    ModelJob::Choice& choice = job.choices.emplace_back();
    choice.number = spec.choice() + i;
    choice.answer = AnswerModel(spec, choice.number);
    for (int t = job.prompt_tokens; t < job.tokens; ++t) choice.answer.Take(spec.tokens(t));
  }
  if (job.tokens > job.prompt_tokens) ++totals_.replayed;
  return job;
}

// False, and the refusal is out: it does not fit, now or ever. Choices share the full blocks of the prompt.
bool ModelWorker::Promise(const ModelJob& job) {
  if (job.blocks > model_.blocks) {
    Refuse(job.stream, job.key, Error(pb::NEVER_FITS, absl::StatusCode::kFailedPrecondition, "larger than the pool"));
  } else if (job.blocks > model_.blocks - promised_) {
    Refuse(job.stream, job.key, Error(pb::NO_BLOCKS, absl::StatusCode::kResourceExhausted, "no KV blocks"));
  } else {
    promised_ += job.blocks;
    cache_.Shrink(model_.blocks - promised_);
    return true;
  }
  return false;
}

ModelJob& ModelWorker::Keep(ModelJob job) {
  const uint64_t id = job.id = next_id_++;
  by_key_[{job.stream, {job.key.request_id(), job.key.attempt()}}] = id;
  SetTimer(std::min(job.deadline, job.expires));
  return jobs_[id] = std::move(job);
}

void ModelWorker::OnReserve(uint64_t stream, const pb::Reserve& reserve) {
  if (!CheckNew(stream, reserve.key(), reserve.remaining_ms())) return;
  if (role() == pb::ROLE_PREFILL && !reserve.compute_prompt()) {
    return Refuse(stream, reserve.key(),
                  Error(pb::INCOMPATIBLE, absl::StatusCode::kFailedPrecondition, "no Reserve here"));
  }
  ModelJob job = NewJob(stream, reserve.key(), reserve.sequence(), reserve.remaining_ms());
  const int size = model_.block_size;
  const int64_t one = (job.prompt_tokens + job.max_tokens + size - 1) / size;
  job.blocks = one + int64_t(job.choices.size() - 1) * (one - job.tokens / size);
  if (!Promise(job)) return;
  job.kind = ModelJob::kLease;
  job.expires = schedule_.now() + model_.lease;
  const bool awaits = !reserve.compute_prompt();
  if (awaits) {
    job.state = ModelJob::kAwaiting;
    job.says_decoding = true;
    job.peer = reserve.prefill_incarnation();
    job.cached = size * cache_.Hit(job.names, (job.tokens - 1) / size);
  }
  ModelJob& kept = Keep(std::move(job));
  pb::LeaseGranted& granted = *Out(stream, kept.key).mutable_lease_granted();
  granted.set_lease_id(kept.id);
  granted.set_lease_ms(int(absl::ToInt64Milliseconds(model_.lease)));
  granted.set_prefix_tokens(kept.cached);
  if (awaits && !world_.Paired(*this, kept.peer)) {
    At(schedule_.now() + absl::Microseconds(200), [this, id = kept.id] {
      const auto it = jobs_.find(id);
      if (it == jobs_.end() || it->second.state != ModelJob::kAwaiting) return;
      const pb::ErrorInfo lost = PeerLost();
      End(id, &lost);
      Flush();
    });
  }
}

void ModelWorker::OnPrefill(uint64_t stream, const pb::Prefill& prefill) {
  if (!CheckNew(stream, prefill.key(), prefill.remaining_ms())) return;
  if (role() != pb::ROLE_PREFILL) {
    return Refuse(stream, prefill.key(),
                  Error(pb::INCOMPATIBLE, absl::StatusCode::kFailedPrecondition, "no Prefill here"));
  }
  ModelJob job = NewJob(stream, prefill.key(), prefill.sequence(), prefill.remaining_ms());
  if (!prefill.has_lease() && job.max_tokens - (job.tokens - job.prompt_tokens) > 1) {
    return Refuse(stream, prefill.key(),
                  Error(pb::INVALID_REQUEST, absl::StatusCode::kInvalidArgument, "lease: is missing"));
  }
  const int whole = prefill.has_lease() ? job.tokens : job.prompt_tokens + job.max_tokens;
  job.blocks = (whole + model_.block_size - 1) / model_.block_size;
  if (!prefill.has_lease())
    job.blocks += int64_t(job.choices.size() - 1) * (job.blocks - job.tokens / model_.block_size);
  if (!Promise(job)) return;
  job.kind = ModelJob::kPrompt;
  job.peer = prefill.lease().decode_incarnation();
  job.lease = prefill.lease().lease_id();
  job.sent = prefill.decode_prefix_tokens();
  Keep(std::move(job));
}

void ModelWorker::Refuse(uint64_t stream, const pb::RequestKey& key, const pb::ErrorInfo& error) {
  ++totals_.refused;
  pb::Refused& refused = *Out(stream, key).mutable_refused();
  *refused.mutable_error() = error;
  refused.set_blocks_free(model_.blocks - promised_);
}

// ---- the other worker ----

void ModelWorker::OnKv(uint64_t peer, const KvMessage& message) {
  const auto done = [&](const pb::ErrorInfo& error) {
    KvMessage answer;
    answer.lease = message.lease;
    answer.error = error;
    world_.ToPeer(*this, peer, std::move(answer));
  };
  if (message.kind == KvMessage::kDone) {
    for (auto& [id, job] : jobs_) {
      if (job.kind != ModelJob::kPrompt || job.peer != peer || job.lease != message.lease) continue;
      if (job.state == ModelJob::kLeaving) {
        EndLeaving(id);
      } else if (message.error.reason() != pb::ERROR_REASON_UNSPECIFIED) {
        End(id, &message.error);
      } else if (job.state == ModelJob::kHandingOver) {
        AddProgress(job, "transfer_done", 0);
        End(id, nullptr);
      }
      break;
    }
    return Flush();
  }
  const auto it = jobs_.find(message.lease);
  if (it == jobs_.end() || it->second.peer != peer || it->second.state == ModelJob::kDecoding) {
    return done(Error(pb::LEASE_UNKNOWN, absl::StatusCode::kNotFound, "no such lease"));
  }
  ModelJob& job = it->second;
  if (job.state == ModelJob::kLeaving) return done(job.words);  // it may have been told before it knew the request
  if (message.kind == KvMessage::kCancel || message.bad || message.computed_tokens != job.tokens) {
    pb::ErrorInfo error = message.error;
    if (message.kind == KvMessage::kCommit && !message.bad) {
      error = Error(pb::INTERNAL_ERROR, absl::StatusCode::kInternal, "another prompt was committed");
    }
    if (message.bad) ++totals_.bad_transfers;
    done(error);
    End(job.id, &error);
    return Flush();
  }
  done({});
  job.state = ModelJob::kDecoding;
  job.computed = job.tokens;
  job.saved_tokens = message.cached_tokens;
  for (const KvMessage::First& first : message.firsts) {
    ModelJob::Choice& choice = job.choices.at(size_t(first.choice - job.choices.front().number));
    choice.answer.Take(first.token);
    choice.over = first.finished;
  }
  cache_.Store(job.names, job.tokens / model_.block_size);
  cache_.Shrink(model_.blocks - promised_);
  pb::Committed& committed = *Out(job.stream, job.key).mutable_committed();
  committed.set_lease_id(job.id);
  committed.set_bytes(message.bytes);
  AddProgress(job, "committed", message.bytes);
  Flush();
  MaybeStep();
}

void ModelWorker::OnPairDown(uint64_t peer) {
  std::vector<uint64_t> ids;
  for (const auto& [id, job] : jobs_) {
    if (job.peer == peer) ids.push_back(id);
  }
  const pb::ErrorInfo lost = PeerLost();
  for (uint64_t id : ids) {
    const ModelJob& job = jobs_.at(id);
    if (job.state == ModelJob::kLeaving) {
      EndLeaving(id);
    } else if (job.kind == ModelJob::kPrompt ? job.opened : job.state == ModelJob::kAwaiting) {
      End(id, &lost);
    }
  }
  Flush();
}

// ---- ends ----

void ModelWorker::Stop(ModelJob& job, const pb::ErrorInfo& why, bool says) {
  if (job.state == ModelJob::kLeaving) return;
  const bool at_once = job.kind == ModelJob::kPrompt ? !job.opened || job.lease == 0 : job.state != ModelJob::kAwaiting;
  if (at_once) return End(job.id, says ? &why : nullptr);
  KvMessage message;
  message.kind = job.kind == ModelJob::kPrompt ? KvMessage::kCancel : KvMessage::kDone;
  message.lease = job.kind == ModelJob::kPrompt ? job.lease : job.id;
  message.error = why;
  world_.ToPeer(*this, job.peer, std::move(message));
  Leave(job, why, says);
}

// Nothing reads or writes its blocks any more in a moment.
void ModelWorker::Leave(ModelJob& job, const pb::ErrorInfo& why, bool says) {
  job.state = ModelJob::kLeaving;
  job.says = says;
  job.words = why;
  job.deadline = job.expires = absl::InfiniteFuture();
  if (!says) by_key_.erase({job.stream, {job.key.request_id(), job.key.attempt()}});
  At(schedule_.now() + rng_.Between(absl::ZeroDuration(), absl::Milliseconds(4)), [this, id = job.id] {
    EndLeaving(id);
    Flush();
  });
}

void ModelWorker::EndLeaving(uint64_t id) {
  const auto it = jobs_.find(id);
  if (it == jobs_.end() || it->second.state != ModelJob::kLeaving) return;
  const pb::ErrorInfo words = it->second.words;
  End(id, it->second.says ? &words : nullptr);
}

void ModelWorker::End(uint64_t id, const pb::ErrorInfo* words) {
  const auto it = jobs_.find(id);
  if (it == jobs_.end()) return;
  const ModelJob& job = it->second;
  if (words != nullptr) *Out(job.stream, job.key).mutable_failed()->mutable_error() = *words;
  promised_ -= job.blocks;
  const auto by_key = by_key_.find({job.stream, {job.key.request_id(), job.key.attempt()}});
  if (by_key != by_key_.end() && by_key->second == id) by_key_.erase(by_key);
  jobs_.erase(it);
}

void ModelWorker::SetTimer(absl::Time at) {
  if (at >= timer_at_) return;
  timer_at_ = at;
  At(at, [this, at] {
    if (at == timer_at_) RunTimers();
  });
}

void ModelWorker::RunTimers() {
  const absl::Time now = schedule_.now();
  std::vector<uint64_t> overdue, expired;
  absl::Time earliest = absl::InfiniteFuture();
  absl::Time next = absl::InfiniteFuture();
  for (const auto& [id, job] : jobs_) {
    if (job.deadline <= now) overdue.push_back(id);
    if (job.deadline > now) next = std::min(next, job.deadline);
    if (job.expires <= now) expired.push_back(id);
    if (job.expires <= now) earliest = std::min(earliest, job.expires);
    if (job.expires > now) next = std::min(next, job.expires);
  }
  // Who comes this late did not listen: the renewals may be on their way.
  if (!expired.empty() && grace_end_ == absl::InfinitePast() && now - earliest > kLate) grace_end_ = now + kGrace;
  if (!expired.empty() && now < grace_end_) {
    next = std::min(next, grace_end_);
    expired.clear();
  } else {
    grace_end_ = absl::InfinitePast();
  }
  for (uint64_t id : overdue) {
    if (jobs_.contains(id)) {
      Stop(jobs_.at(id), Error(pb::DEADLINE, absl::StatusCode::kDeadlineExceeded, "the deadline has passed"), true);
    }
  }
  for (uint64_t id : expired) {
    if (!jobs_.contains(id)) continue;
    ++totals_.expired;
    Stop(jobs_.at(id), Error(pb::LEASE_EXPIRED, absl::StatusCode::kAborted, "the lease was not renewed"), true);
  }
  timer_at_ = absl::InfiniteFuture();
  SetTimer(next);
  Flush();
}

void ModelWorker::Drain(bool hand_over) {
  if (!std::exchange(draining_, true)) world_.ReportSoon(*this);
  if (!hand_over) return;
  const pb::ErrorInfo why = Error(pb::DRAINING_WORKER, absl::StatusCode::kUnavailable, "handed over");
  std::vector<uint64_t> ids;
  for (const auto& [id, job] : jobs_) ids.push_back(id);
  for (uint64_t id : ids) Stop(jobs_.at(id), why, true);
  Flush();
}

void ModelWorker::ShutDown() {
  draining_ = true;
  const pb::ErrorInfo why = Error(pb::DRAINING_WORKER, absl::StatusCode::kUnavailable, "the worker is shutting down");
  std::vector<uint64_t> ids;
  for (const auto& [id, job] : jobs_) ids.push_back(id);
  for (uint64_t id : ids) {
    const ModelJob& job = jobs_.at(id);
    const bool silent = job.state == ModelJob::kLeaving && !job.says;
    const pb::ErrorInfo words = job.state == ModelJob::kLeaving ? job.words : why;
    End(id, silent ? nullptr : &words);
  }
  Flush();
  for (uint64_t stream : std::exchange(streams_, {})) {
    world_.CloseStream(*this, stream, absl::UnavailableError(why.message()));
  }
}

// ---- saying ----

pb::WorkerEvent& ModelWorker::Out(uint64_t stream, const pb::RequestKey& key) {
  pb::WorkerEvent& event = *out_[stream].add_events();
  *event.mutable_key() = key;
  return event;
}

void ModelWorker::AddProgress(ModelJob& job, const char* name, int64_t amount) {
  pb::TimelineEvent& entry = *Out(job.stream, job.key).mutable_progress()->add_events();
  entry.set_name(name);
  entry.set_at_ms(absl::ToDoubleMilliseconds(schedule_.now() - job.received));
  entry.set_amount(amount);
}

void ModelWorker::Flush() {
  for (uint64_t stream : streams_) {
    pb::PrefixEvents prefixes = cache_.TakeEvents();
    if (!prefixes.events().empty()) *out_[stream].mutable_prefixes() = std::move(prefixes);
  }
  for (auto& [stream, message] : std::exchange(out_, {})) {
    if (!streams_.contains(stream)) continue;
    *message.mutable_report() = TakeReport();
    world_.ToRouter(*this, stream, std::move(message));
  }
}

int ModelWorker::running() const {
  int rows = 0;
  for (const auto& [id, job] : jobs_) {
    if (job.state == ModelJob::kDecoding) rows += job.rows();
    if (job.state == ModelJob::kComputing && job.started) ++rows;
  }
  return rows;
}

bool ModelWorker::Has(const std::string& request_id, int attempt) const {
  return std::any_of(jobs_.begin(), jobs_.end(), [&](const auto& job) {
    return job.second.key.request_id() == request_id && job.second.key.attempt() == attempt;
  });
}

int64_t ModelWorker::waiting_tokens() const {
  int64_t tokens = 0;
  for (const auto& [id, job] : jobs_) {
    if (job.state == ModelJob::kComputing) tokens += job.left();
  }
  return tokens;
}

pb::WorkerReport ModelWorker::TakeReport() {
  pb::WorkerReport report;
  report.set_sequence(++reports_);
  report.set_blocks_free(model_.blocks - promised_);
  report.set_running(running());
  report.set_waiting_tokens(waiting_tokens());
  report.set_steps(uint64_t(totals_.steps));
  report.set_step_ms(step_ms_);
  report.mutable_engine()->set_rows(uint64_t(totals_.rows));
  report.mutable_engine()->set_execute_seconds(totals_.execute_seconds);
  report.set_draining(draining_);
  report.set_stuck(stuck_);
  if (role() == pb::ROLE_PREFILL) {
    *report.mutable_pairs() = world_.PairsOf(*this);
  }
  return report;
}

}  // namespace sluice::simulation
