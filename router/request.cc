#include "router/request.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace sluice::router {
namespace {

RequestState StateOf(Attempt::State state) {
  switch (state) {
    case Attempt::State::kReserved:
      return RequestState::kReserved;
    case Attempt::State::kPrefilling:
      return RequestState::kPrefilling;
    case Attempt::State::kHandingOff:
      return RequestState::kHandingOff;
    default:
      return RequestState::kDecoding;
  }
}

// Hands a step's parts on; its outcome is the caller's to judge.
void Take(AttemptStep& step, const Attempt& attempt, Transition& transition) {
  const auto move = [](auto& from, auto& to) {
    to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
  };
  move(step.tokens, transition.tokens);
  move(step.to_workers, transition.to_workers);
  for (uint64_t worker : step.leaving) {
    const bool leased = worker == attempt.decode_incarnation();
    transition.leaving.push_back({worker, attempt.number(), leased ? attempt.lease_time() : absl::ZeroDuration()});
  }
  for (uint64_t worker : step.freed) transition.freed.push_back({worker, attempt.number(), absl::ZeroDuration()});
}

Transition Ignored() {
  Transition transition;
  transition.ignored = true;
  return transition;
}

}  // namespace

const char* StateName(RequestState state) {
  switch (state) {
    case RequestState::kQueued:
      return "queued";
    case RequestState::kReserved:
      return "reserved";
    case RequestState::kPrefilling:
      return "prefilling";
    case RequestState::kHandingOff:
      return "handing_off";
    case RequestState::kDecoding:
      return "decoding";
    case RequestState::kDone:
      return "done";
    case RequestState::kFailed:
      return "failed";
  }
  return "unknown";
}

Request::Request(Submit submit, std::string wire_id, const RequestOptions& options)
    : record_(std::make_unique<RequestRecord>(std::move(submit), std::move(wire_id), options.headroom_tokens)),
      limits_(options.moves) {
  legs_.push_back(Leg{.count = record_->answer.choices(), .budget = MoveBudget(limits_), .attempt = nullptr});
  record_->timeline.Mark("queued", record_->submit.received, "");
}

Demand Request::demand(int leg) const {
  const Leg& l = legs_[size_t(leg)];
  const int emitted = record_->answer.emitted(l.first);
  return {record_->submit.sequence.tokens_size() + emitted,
          record_->submit.sequence.sampling().max_tokens() - emitted,
          l.count,
          record_->headroom_tokens,
          absl::ToDoubleMilliseconds(record_->submit.ttft_limit),
          absl::ToDoubleMilliseconds(record_->submit.tpot_limit)};
}

std::vector<int32_t> Request::TokensOf(int leg) const {
  const pb::SequenceSpec spec = record_->answer.Remaining(legs_[size_t(leg)].first, legs_[size_t(leg)].count);
  return {spec.tokens().begin(), spec.tokens().end()};
}

RequestState Request::state() const {
  if (over()) return end_;
  RequestState state = RequestState::kDecoding;
  for (const Leg& leg : legs_) {
    if (leg.over) continue;
    state = std::min(state, leg.attempt == nullptr ? RequestState::kQueued : StateOf(leg.attempt->state()));
  }
  return state;
}

bool Request::Involves(uint64_t incarnation) const {
  return std::any_of(legs_.begin(), legs_.end(),
                     [&](const Leg& leg) { return leg.attempt != nullptr && leg.attempt->Involves(incarnation); });
}

std::vector<uint64_t> Request::LeasesAt(uint64_t incarnation) const {
  std::vector<uint64_t> leases;
  for (const Leg& leg : legs_) {
    if (leg.attempt == nullptr || leg.attempt->decode_incarnation() != incarnation) continue;
    if (leg.attempt->lease() != 0) leases.push_back(leg.attempt->lease());
  }
  return leases;
}

ToWorker Request::Dispatch(int leg, const Assignment& assignment, absl::Time now) {
  Leg& l = legs_[size_t(leg)];
  l.number = ++attempts_;
  l.attempt = std::make_unique<Attempt>(*record_, l.number, l.first, l.count, assignment);
  last_worker_ = l.attempt->last_worker();
  prefill_worker_ = assignment.prefill.name;
  decode_worker_ = assignment.decode.name;
  return l.attempt->Start(now);
}

// ---- what the workers say ----

Request::Leg* Request::Find(const Origin& from) {
  for (Leg& leg : legs_) {
    if (leg.attempt != nullptr && leg.number == from.attempt) return &leg;
  }
  return nullptr;
}

template <typename Happen>
Transition Request::Happened(const Origin& from, absl::Time now, Happen happen) {
  Leg* leg = over() ? nullptr : Find(from);
  if (leg == nullptr) return Ignored();
  AttemptStep step = happen(*leg->attempt);
  if (step.ignored) return Ignored();
  Transition transition;
  Apply(*leg, std::move(step), now, transition);
  return transition;
}

Transition Request::OnGranted(const Origin& from, const pb::LeaseGranted& granted, absl::Time now) {
  return Happened(from, now, [&](Attempt& a) { return a.OnGranted(from, granted, now); });
}

Transition Request::OnRefused(const Origin& from, const pb::Refused& refused, absl::Time now) {
  return Happened(from, now, [&](Attempt& a) { return a.OnRefused(from, refused); });
}

Transition Request::OnTokens(const Origin& from, const pb::Tokens& tokens, absl::Time now) {
  return Happened(from, now, [&](Attempt& a) { return a.OnTokens(from, tokens, now); });
}

Transition Request::OnCommitted(const Origin& from, const pb::Committed& committed, absl::Time now) {
  return Happened(from, now, [&](Attempt& a) { return a.OnCommitted(from, committed, now); });
}

Transition Request::OnFinished(const Origin& from, const pb::Finished& finished, absl::Time now) {
  return Happened(from, now, [&](Attempt& a) { return a.OnFinished(from, finished); });
}

Transition Request::OnFailed(const Origin& from, const pb::Failed& failed, absl::Time now) {
  return Happened(from, now, [&](Attempt& a) { return a.OnFailed(from, failed); });
}

Transition Request::OnProgress(const Origin& from, const pb::Progress& progress, absl::Time now) {
  return Happened(from, now, [&](Attempt& a) { return a.OnProgress(from, progress, now); });
}

Transition Request::OnWorkerLost(uint64_t incarnation, const std::string& why, absl::Time now) {
  Transition transition;
  transition.ignored = true;
  const size_t legs = legs_.size();  // those that come while it moves have no worker
  for (size_t i = 0; i < legs && !over(); ++i) {
    if (legs_[i].attempt == nullptr) continue;
    AttemptStep step = legs_[i].attempt->OnWorkerLost(incarnation, why);
    if (step.ignored) continue;
    transition.ignored = false;
    Apply(legs_[i], std::move(step), now, transition);
  }
  return transition;
}

// ---- what an attempt's step means ----

void Request::Apply(Leg& leg, AttemptStep step, absl::Time now, Transition& transition) {
  Take(step, *leg.attempt, transition);
  if (!step.outcome.has_value()) return;
  const AttemptOutcome outcome = std::move(*step.outcome);
  leg.attempt.reset();
  switch (outcome.kind) {
    case AttemptOutcome::kComplete:
      leg.over = true;
      if (record_->answer.complete()) Finish(RequestState::kDone, absl::OkStatus(), now, transition);
      return;
    case AttemptOutcome::kRefused:
      if (outcome.never_fits != 0) never_fits_.insert(outcome.never_fits);
      transition.requeue.push_back({IndexOf(leg)});
      return;
    case AttemptOutcome::kFailed:
      transition.blamed.insert(transition.blamed.end(), outcome.blamed.begin(), outcome.blamed.end());
      return Move(leg, outcome, now, transition);
  }
}

void Request::Move(Leg& leg, const AttemptOutcome& outcome, absl::Time now, Transition& transition) {
  if (!outcome.may_move || !leg.budget.Take(record_->answer.emitted())) {
    leg.over = true;
    AbandonAll(std::string(outcome.why.message()), transition);
    return Finish(RequestState::kFailed, outcome.why, now, transition);
  }
  shunned_.insert(outcome.blamed.begin(), outcome.blamed.end());
  moved_because_ = outcome.why;
  wait_until_ = now + limits_.wait;
  if (transition.moved.empty()) {  // several legs that one loss moves are one move
    ++moves_;
    transition.moved = std::string(outcome.why.message());
    record_->timeline.Mark("moved", now, last_worker_, record_->answer.emitted());
  }
  Split(leg, now + leg.budget.Backoff(), transition);
  if (record_->answer.complete()) Finish(RequestState::kDone, absl::OkStatus(), now, transition);
}

// The leg continues each of its choices that is not over.
void Request::Split(Leg& leg, absl::Time not_before, Transition& transition) {
  for (int c = leg.first; c < leg.first + leg.count; ++c) record_->answer.EndByLastToken(c);
  if (!record_->answer.begun()) {
    transition.requeue.push_back({IndexOf(leg), not_before});
    return;
  }
  const int first = leg.first;
  const int count = leg.count;
  const MoveBudget budget = leg.budget;
  int here = IndexOf(leg);  // the first of them stays in this leg
  leg.over = true;
  for (int c = first; c < first + count; ++c) {
    if (record_->answer.over(c)) continue;
    if (here < 0) {
      here = int(legs_.size());
      legs_.push_back(Leg{.budget = budget, .attempt = nullptr});
    }
    Leg& part = legs_[size_t(here)];
    part.first = c;
    part.count = 1;
    part.over = false;
    transition.requeue.push_back({here, not_before});
    here = -1;
  }
}

// ---- what else happens ----

Transition Request::OnStopped(int choice, absl::Time now) {
  Answer& answer = record_->answer;
  if (over() || choice < 0 || choice >= answer.choices() || answer.emitted(choice) == 0) return Ignored();
  answer.End(choice, pb::FINISH_REASON_STOP);
  if (answer.complete()) return OnEnded(absl::OkStatus(), now);
  Transition transition;
  for (Leg& leg : legs_) {  // a leg of several choices goes on until all of them are over
    if (leg.over || leg.count > 1 || leg.first != choice) continue;
    leg.over = true;
    if (leg.attempt == nullptr) {
      transition.unqueue.push_back(IndexOf(leg));
    } else {
      AttemptStep step = leg.attempt->Abandon("the answer is complete");
      Take(step, *leg.attempt, transition);
      leg.attempt.reset();
    }
  }
  return transition;
}

Transition Request::OnEnded(const absl::Status& why, absl::Time now) {
  if (over()) return Ignored();
  Transition transition;
  AbandonAll(why.ok() ? "the answer is complete" : std::string(why.message()), transition);
  if (why.ok()) {
    for (int c = 0; c < record_->answer.choices(); ++c) record_->answer.End(c, pb::FINISH_REASON_STOP);
  }
  Finish(why.ok() ? RequestState::kDone : RequestState::kFailed, why, now, transition);
  return transition;
}

void Request::AbandonAll(const std::string& why, Transition& transition) {
  for (Leg& leg : legs_) {
    leg.over = true;
    if (leg.attempt == nullptr) continue;
    AttemptStep step = leg.attempt->Abandon(why);
    Take(step, *leg.attempt, transition);
    leg.attempt.reset();
  }
}

void Request::Finish(RequestState end, absl::Status status, absl::Time now, Transition& transition) {
  end_ = end;
  record_->timeline.Mark("done", now, last_worker_);
  transition.requeue.clear();
  transition.end = std::move(status);
}

ClientEnd Request::End(const absl::Status& status, absl::Time now) const {
  return {.call = call(),
          .at = now,
          .status = status,
          .refusal = RefusalReason::kNone,
          .retry_after = absl::ZeroDuration(),
          .reasons = record_->answer.reasons(),
          .cached_tokens = record_->cached_tokens,
          .timeline = record_->timeline.Sorted(),
          .transfer_bytes = record_->transfer_bytes,
          .exposed_transfer_ms = record_->exposed_transfer_ms,
          .moves = moves()};
}

pb::RequestSummary Request::Summary(absl::Time now, const ClientEnd* end) const {
  const pb::SequenceSpec& asked = record_->submit.sequence;
  pb::RequestSummary summary;
  summary.set_request_id(record_->submit.request_id);
  summary.set_state(StateName(state()));
  if (end != nullptr) {
    summary.set_state(end->status.ok() ? "done" : absl::IsCancelled(end->status) ? "cancelled" : "failed");
    summary.set_error(std::string(end->status.message()));
  }
  summary.set_tenant(asked.tenant());
  summary.set_priority(asked.priority());
  summary.set_prompt_tokens(asked.num_prompt_tokens());
  summary.set_completion_tokens(int32_t(record_->answer.emitted()));
  summary.set_cached_tokens(record_->cached_tokens);
  summary.set_age_ms(absl::ToDoubleMilliseconds(now - record_->submit.received));
  summary.set_prefill_worker(prefill_worker_);
  summary.set_decode_worker(decode_worker_);
  pb::Timing& timing = *summary.mutable_timing();
  timing = TimingOf(end != nullptr ? end->timeline : record_->timeline.Sorted());
  if (const int tokens = record_->answer.emitted(0); tokens > 1 && timing.ttft_ms() > 0) {
    const double last_ms = absl::ToDoubleMilliseconds(emitted_at_ - record_->submit.received);
    timing.set_tpot_ms((last_ms - timing.ttft_ms()) / (tokens - 1));
  }
  timing.set_total_ms(summary.age_ms());
  timing.set_transfer_bytes(record_->transfer_bytes);
  timing.set_exposed_transfer_ms(record_->exposed_transfer_ms);
  timing.set_moves(moves_);
  return summary;
}

}  // namespace sluice::router
