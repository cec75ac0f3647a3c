#include "router/request.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace sluice::router {
namespace {

Transition Ignored() {
  Transition transition;
  transition.ignored = true;
  return transition;
}

bool MayPass(pb::ErrorReason reason) {
  switch (reason) {
    case pb::NO_BLOCKS:
    case pb::OVERLOADED:
    case pb::DRAINING_WORKER:
    case pb::STALE_INCARNATION:
      return true;
    default:
      return false;
  }
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

absl::Status ToStatus(const pb::ErrorInfo& error, const std::string& worker) {
  absl::StatusCode code = static_cast<absl::StatusCode>(error.code());
  switch (error.reason()) {
    case pb::INVALID_REQUEST:
    case pb::NEVER_FITS:
      code = absl::StatusCode::kInvalidArgument;
      break;
    case pb::DEADLINE:
      code = absl::StatusCode::kDeadlineExceeded;
      break;
    case pb::LEASE_EXPIRED:
    case pb::LEASE_UNKNOWN:
    case pb::STALE_INCARNATION:
    case pb::DRAINING_WORKER:
    case pb::WORKER_LOST:
      code = absl::StatusCode::kUnavailable;
      break;
    default:
      break;
  }
  // A worker that cancels on its own, or fails with no code, has a defect; the client did not cancel.
  if (code == absl::StatusCode::kOk || code == absl::StatusCode::kCancelled || error.code() < 0 || error.code() > 16) {
    code = absl::StatusCode::kInternal;
  }
  const std::string& message = error.message();
  if (code == absl::StatusCode::kInvalidArgument) return absl::Status(code, message);
  return absl::Status(code,
                      absl::StrCat("worker ", worker, ": ", message.empty() ? "failed without a reason" : message));
}

Request::Request(Submit submit, std::string wire_id) : submit_(std::move(submit)), wire_id_(std::move(wire_id)) {
  const size_t choices = size_t(std::max(1, submit_.sequence.sampling().n()));
  emitted_.resize(choices);
  reasons_.resize(choices, pb::FINISH_REASON_UNSPECIFIED);
  Mark("queued", submit_.received);
}

Demand Request::demand() const {
  return {submit_.sequence.tokens_size(), submit_.sequence.sampling().max_tokens() * int(emitted_.size())};
}

void Request::Mark(const char* event, absl::Time now, int64_t amount) {
  pb::TimelineEvent& entry = timeline_.emplace_back();
  entry.set_name(event);
  entry.set_at_ms(absl::ToDoubleMilliseconds(now - submit_.received));
  if (state_ != RequestState::kQueued) entry.set_worker(worker_);
  entry.set_amount(amount);
}

bool Request::Stale(const Origin& from) const {
  return !at_worker() || from.incarnation != incarnation_ || from.attempt != attempt_;
}

pb::RouterMessage Request::Dispatch(uint64_t incarnation, const std::string& worker, absl::Time now) {
  ++attempt_;
  incarnation_ = incarnation;
  worker_ = worker;
  lease_ = 0;
  state_ = RequestState::kReserved;
  pb::RouterMessage message;
  pb::Reserve& reserve = *message.mutable_reserve();
  reserve.mutable_key()->set_request_id(wire_id_);
  reserve.mutable_key()->set_attempt(attempt_);
  *reserve.mutable_sequence() = submit_.sequence;
  reserve.set_compute_prompt(true);
  reserve.set_headroom_tokens(submit_.sequence.sampling().max_tokens());
  if (submit_.deadline != absl::InfiniteFuture()) {
    reserve.set_remaining_ms(std::max<int64_t>(1, absl::ToInt64Milliseconds(submit_.deadline - now)));
  }
  return message;
}

Transition Request::OnGranted(const Origin& from, const pb::LeaseGranted& granted, absl::Time now) {
  if (Stale(from) || state_ != RequestState::kReserved) return Ignored();
  lease_ = granted.lease_id();
  lease_time_ = absl::Milliseconds(granted.lease_ms());
  state_ = RequestState::kDecoding;
  Mark("reserved", now);
  return {};
}

Transition Request::OnRefused(const Origin& from, const pb::Refused& refused, absl::Time now) {
  if (Stale(from) || state_ != RequestState::kReserved) return Ignored();
  const pb::ErrorReason reason = refused.error().reason();
  if (reason == pb::NEVER_FITS) never_fits_.insert(incarnation_);
  if (!MayPass(reason) && reason != pb::NEVER_FITS) {
    return FailQuietly(ToStatus(refused.error(), worker_), now);
  }
  state_ = RequestState::kQueued;
  Transition transition;
  transition.worker_free = true;
  transition.requeue = true;
  return transition;
}

Transition Request::OnTokens(const Origin& from, const pb::Tokens& tokens, absl::Time now) {
  if (Stale(from)) return Ignored();
  const int choice = tokens.choice();
  if (choice < 0 || choice >= int(emitted_.size())) {
    return Fail(absl::InternalError(
                    absl::StrFormat("worker %s: tokens of choice %d, which was not asked for", worker_, choice)),
                now);
  }
  if (state_ != RequestState::kDecoding) {
    return Fail(absl::InternalError(absl::StrCat("worker ", worker_, ": tokens before the lease was granted")), now);
  }
  const int known = emitted(choice);
  const int first = tokens.first_index();
  const int count = tokens.token_ids_size();
  if (first > known) {
    // What is missing never comes again on an ordered stream; an answer with a hole is no answer.
    return Fail(
        absl::InternalError(absl::StrFormat("worker %s: token %d came, token %d is missing", worker_, first, known)),
        now);
  }
  if (first < 0 || first + count <= known || reasons_[choice] != pb::FINISH_REASON_UNSPECIFIED) return Ignored();
  if (first + count > submit_.sequence.sampling().max_tokens()) {
    return Fail(absl::InternalError(absl::StrFormat("worker %s: more than max_tokens = %d tokens", worker_,
                                                    submit_.sequence.sampling().max_tokens())),
                now);
  }
  Transition transition;
  pb::Tokens& fresh = transition.tokens.emplace();
  fresh.set_choice(choice);
  fresh.set_first_index(known);
  const bool logprobs = tokens.logprobs_size() == count;
  for (int i = known - first; i < count; ++i) {
    fresh.add_token_ids(tokens.token_ids(i));
    if (logprobs) *fresh.add_logprobs() = tokens.logprobs(i);
  }
  if (known == 0 && std::all_of(emitted_.begin(), emitted_.end(), [](int n) { return n == 0; })) {
    Mark("first_token", now);
  }
  emitted_[choice] = first + count;
  return transition;
}

Transition Request::OnFinished(const Origin& from, const pb::Finished& finished, absl::Time now) {
  if (Stale(from)) return Ignored();
  const int choice = finished.choice();
  if (choice < 0 || choice >= int(emitted_.size()) || emitted(choice) == 0 ||
      finished.reason() == pb::FINISH_REASON_UNSPECIFIED) {
    return Fail(
        absl::InternalError(absl::StrFormat("worker %s: choice %d finished without tokens or reason", worker_, choice)),
        now);
  }
  reasons_[choice] = finished.reason();
  cached_tokens_ = finished.cached_tokens();
  const bool all = std::none_of(reasons_.begin(), reasons_.end(),
                                [](pb::FinishReason reason) { return reason == pb::FINISH_REASON_UNSPECIFIED; });
  if (!finished.last()) return {};
  if (!all) return FailQuietly(absl::InternalError(absl::StrCat("worker ", worker_, ": a choice is missing")), now);
  Transition transition;
  transition.worker_free = true;
  transition.end = absl::OkStatus();
  Mark("done", now);
  state_ = RequestState::kDone;
  return transition;
}

Transition Request::OnFailed(const Origin& from, const pb::Failed& failed, absl::Time now) {
  if (Stale(from)) return Ignored();
  return FailQuietly(ToStatus(failed.error(), worker_), now);
}

Transition Request::OnProgress(const Origin& from, const pb::Progress& progress) {
  if (Stale(from)) return Ignored();
  // The worker's clock starts at its receipt of the request; the difference to ours is the way there, which is small.
  const double sent_ms = timeline_.back().at_ms();
  for (const pb::TimelineEvent& event : progress.events()) {
    pb::TimelineEvent& entry = timeline_.emplace_back(event);
    entry.set_at_ms(std::max(sent_ms, event.at_ms()));
    entry.set_worker(worker_);
  }
  return {};
}

Transition Request::OnWorkerLost(uint64_t incarnation, const std::string& why, absl::Time now) {
  if (!at_worker() || incarnation != incarnation_) return Ignored();
  return FailQuietly(absl::UnavailableError(absl::StrFormat(
                         "the worker was lost while the request was %s after %d tokens: %s",
                         state_ == RequestState::kReserved ? "being reserved" : StateName(state_), emitted(0), why)),
                     now);
}

Transition Request::OnEnded(const absl::Status& why, absl::Time now) {
  if (over()) return Ignored();
  if (why.ok()) {
    for (pb::FinishReason& reason : reasons_) {
      if (reason == pb::FINISH_REASON_UNSPECIFIED) reason = pb::FINISH_REASON_STOP;
    }
  }
  return Fail(why, now);
}

Transition Request::Fail(absl::Status status, absl::Time now) {
  Transition transition;
  if (at_worker()) {
    pb::Cancel& cancel = *transition.to_worker.emplace().mutable_cancel();
    cancel.mutable_key()->set_request_id(wire_id_);
    cancel.mutable_key()->set_attempt(attempt_);
    cancel.set_why(std::string(status.message()));
  }
  Mark("done", now);
  state_ = status.ok() ? RequestState::kDone : RequestState::kFailed;
  transition.end = std::move(status);
  return transition;
}

Transition Request::FailQuietly(absl::Status status, absl::Time now) {
  Transition transition = Fail(std::move(status), now);
  transition.to_worker.reset();
  transition.worker_free = true;
  return transition;
}

ClientEnd Request::End(const absl::Status& status, absl::Time now) const {
  return {.call = submit_.call,
          .at = now,
          .status = status,
          .retry_after = absl::ZeroDuration(),
          .reasons = reasons_,
          .cached_tokens = cached_tokens_,
          .timeline = timeline_};
}

}  // namespace sluice::router
