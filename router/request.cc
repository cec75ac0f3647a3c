#include "router/request.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "router/worker_error.h"

namespace sluice::router {
namespace {

constexpr size_t kMaxTimeline = 2000;  // entries; what comes beyond it is dropped

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

Request::Request(Submit submit, std::string wire_id, int headroom_tokens)
    : submit_(std::move(submit)), wire_id_(std::move(wire_id)), headroom_tokens_(headroom_tokens) {
  const size_t choices = size_t(std::max(1, submit_.sequence.sampling().n()));
  emitted_.resize(choices);
  held_.resize(choices);
  reasons_.resize(choices, pb::FINISH_REASON_UNSPECIFIED);
  Mark("queued", submit_.received, "");
}

Demand Request::demand() const {
  return {submit_.sequence.tokens_size(), submit_.sequence.sampling().max_tokens(), int(emitted_.size()),
          headroom_tokens_};
}

bool Request::Involves(uint64_t incarnation) const {
  const auto is = [incarnation](const Side& side) {
    return side.incarnation == incarnation && (side.state == Side::kPromised || side.state == Side::kOpen);
  };
  return is(decode_) || is(prefill_);
}

bool Request::HasAllFirst() const {
  return std::all_of(emitted_.begin(), emitted_.end(), [](int n) { return n > 0; });
}

bool Request::HasAnyFirst() const {
  return std::any_of(emitted_.begin(), emitted_.end(), [](int n) { return n > 0; });
}

bool Request::Complete() const {
  return HasAllFirst() &&
         std::none_of(reasons_.begin(), reasons_.end(), [](auto r) { return r == pb::FINISH_REASON_UNSPECIFIED; });
}

Request::Side* Request::Find(const Origin& from) {
  if (over() || state_ == RequestState::kQueued || from.attempt != attempt_) return nullptr;
  for (Side* side : {&decode_, &prefill_}) {
    if (side->state == Side::kOpen && side->incarnation == from.incarnation) return side;
  }
  return nullptr;
}

// ---- the way to the workers ----

pb::RequestKey Request::Key() const {
  pb::RequestKey key;
  key.set_request_id(wire_id_);
  key.set_attempt(attempt_);
  return key;
}

int64_t Request::RemainingMs(absl::Time now) const {
  if (submit_.deadline == absl::InfiniteFuture()) return 0;
  return std::max<int64_t>(1, absl::ToInt64Milliseconds(submit_.deadline - now));
}

ToWorker Request::Dispatch(const Assignment& assignment, absl::Time now) {
  ++attempt_;
  lease_ = 0;
  committed_ = false;
  const auto side = [](const Assignment::Worker& worker, Side::State state) {
    return Side{worker.incarnation == 0 ? Side::kNone : state, worker.incarnation, worker.name, absl::Time()};
  };
  decode_ = side(assignment.decode, Side::kOpen);
  prefill_ = side(assignment.prefill, Side::kPromised);
  if (decode_.state == Side::kNone) {
    state_ = RequestState::kPrefilling;
    prefill_.state = Side::kOpen;
    prefill_.sent = now;
    Mark("prefilling", now, prefill_.name);
    return {prefill_.incarnation, PrefillMessage(nullptr, now)};
  }
  state_ = RequestState::kReserved;
  decode_.sent = now;
  ToWorker out{decode_.incarnation, {}};
  pb::Reserve& reserve = *out.message.mutable_reserve();
  *reserve.mutable_key() = Key();
  *reserve.mutable_sequence() = submit_.sequence;
  reserve.set_compute_prompt(!split());
  const int whole = submit_.sequence.sampling().max_tokens();
  reserve.set_headroom_tokens(headroom_tokens_ > 0 ? std::min(headroom_tokens_, whole) : whole);
  reserve.set_remaining_ms(RemainingMs(now));
  reserve.set_prefill_incarnation(prefill_.incarnation);
  return out;
}

pb::RouterMessage Request::PrefillMessage(const pb::LeaseGranted* granted, absl::Time now) const {
  pb::RouterMessage message;
  pb::Prefill& prefill = *message.mutable_prefill();
  *prefill.mutable_key() = Key();
  *prefill.mutable_sequence() = submit_.sequence;
  prefill.set_remaining_ms(RemainingMs(now));
  if (granted != nullptr) {
    prefill.mutable_lease()->set_decode_incarnation(decode_.incarnation);
    prefill.mutable_lease()->set_lease_id(granted->lease_id());
    prefill.set_decode_prefix_tokens(granted->prefix_tokens());
    *prefill.mutable_decode_blocks() = granted->blocks();
  }
  return message;
}

// ---- what the workers say ----

Transition Request::OnGranted(const Origin& from, const pb::LeaseGranted& granted, absl::Time now) {
  if (Find(from) != &decode_ || state_ != RequestState::kReserved) return Ignored();
  lease_ = granted.lease_id();
  lease_time_ = absl::Milliseconds(granted.lease_ms());
  Mark("reserved", now, decode_.name);
  Transition transition;
  if (!split()) {
    state_ = RequestState::kDecoding;
    return transition;
  }
  if (granted.prefix_tokens() < 0 || granted.prefix_tokens() >= submit_.sequence.tokens_size()) {
    return Broken(decode_, absl::StrFormat("%d tokens of the prompt are there already", granted.prefix_tokens()), now);
  }
  state_ = RequestState::kPrefilling;
  prefill_.state = Side::kOpen;
  prefill_.sent = now;
  Mark("prefilling", now, prefill_.name);
  transition.to_workers.push_back({prefill_.incarnation, PrefillMessage(&granted, now)});
  return transition;
}

Transition Request::OnRefused(const Origin& from, const pb::Refused& refused, absl::Time now) {
  Side* side = Find(from);
  if (side == nullptr || HasAnyFirst() || committed_) return Ignored();
  if (state_ != (side == &decode_ ? RequestState::kReserved : RequestState::kPrefilling)) return Ignored();
  const pb::ErrorReason reason = refused.error().reason();
  if (reason == pb::NEVER_FITS) never_fits_.insert(side->incarnation);
  Transition transition;
  Close(*side, transition);
  if (MayPass(reason) || reason == pb::NEVER_FITS) return Requeue(std::move(transition));
  return Fail(ToStatus(refused.error(), side->name), now, std::move(transition));
}

Transition Request::Requeue(Transition transition) {
  Close(prefill_, transition);  // it has refused, is lost or knows nothing
  if (lease_ != 0) Release(transition);
  Cancel(decode_, "another prefill worker will be chosen", transition);
  state_ = RequestState::kQueued;
  transition.requeue = true;
  return transition;
}

Transition Request::OnTokens(const Origin& from, const pb::Tokens& tokens, absl::Time now) {
  Side* side = Find(from);
  if (side == nullptr) return Ignored();
  const int choice = tokens.choice();
  if (choice < 0 || choice >= int(emitted_.size())) {
    return Broken(*side, absl::StrFormat("tokens of choice %d, which was not asked for", choice), now);
  }
  const bool computes_prompt = side == &prefill_ || !split();
  if (const int got = tokens.prompt_logprobs_size(); computes_prompt && !HasAnyFirst() && got != PromptLogprobsDue()) {
    return Broken(
        *side, absl::StrFormat("%d log-probabilities of the prompt, where %d were due", got, PromptLogprobsDue()), now);
  }
  return side == &prefill_ ? OnFirstToken(tokens, now) : OnDecoded(tokens, now);
}

int Request::PromptLogprobsDue() const {
  return submit_.sequence.sampling().has_prompt_logprobs() ? submit_.sequence.num_prompt_tokens() - 1 : 0;
}

Transition Request::OnFirstToken(const pb::Tokens& tokens, absl::Time now) {
  const size_t choice = size_t(tokens.choice());
  if (tokens.first_index() != 0 || tokens.token_ids_size() != 1) {
    return Broken(prefill_,
                  absl::StrFormat("%d tokens from token %d on, where token 0 was due", tokens.token_ids_size(),
                                  tokens.first_index()),
                  now);
  }
  if (emitted_[choice] > 0) return Ignored();
  Transition transition;
  if (!HasAnyFirst()) Mark("first_token", now, prefill_.name);
  Emit(tokens.choice(), tokens, 0, transition);
  if (held_[choice].token_ids_size() > 0) Emit(tokens.choice(), std::exchange(held_[choice], {}), 0, transition);
  if (!HasAllFirst() || !split()) return transition;
  state_ = committed_ ? RequestState::kDecoding : RequestState::kHandingOff;
  if (all_decoded_ && Complete()) {
    Leave(prefill_, transition);
    Finish(RequestState::kDone, absl::OkStatus(), now, transition);
  }
  return transition;
}

// Of a decode worker from token 1 on, of `both` from token 0 on.
Transition Request::OnDecoded(const pb::Tokens& tokens, absl::Time now) {
  const size_t choice = size_t(tokens.choice());
  if (state_ == RequestState::kReserved) return Broken(decode_, "tokens before the lease was granted", now);
  if (split() && !committed_) return Broken(decode_, "tokens before the KV was committed", now);
  if (reasons_[choice] != pb::FINISH_REASON_UNSPECIFIED) return Ignored();
  const bool hold = split() && emitted_[choice] == 0;
  const int due = hold ? 1 + held_[choice].token_ids_size() : emitted_[choice];
  const int first = tokens.first_index();
  const int count = tokens.token_ids_size();
  if (first > due) {
    // What is missing never comes again on an ordered stream; an answer with a hole is no answer.
    return Broken(decode_, absl::StrFormat("token %d came, token %d is missing", first, due), now);
  }
  if (first < 0 || first + count <= due) return Ignored();
  if (first + count > submit_.sequence.sampling().max_tokens()) {
    return Broken(decode_,
                  absl::StrFormat("more than max_tokens = %d tokens", submit_.sequence.sampling().max_tokens()), now);
  }
  Transition transition;
  if (hold) {
    held_[choice].set_choice(tokens.choice());
    for (int i = due - first; i < count; ++i) {
      held_[choice].add_token_ids(tokens.token_ids(i));
      if (tokens.logprobs_size() == count) *held_[choice].add_logprobs() = tokens.logprobs(i);
    }
    return transition;
  }
  if (!split() && !HasAnyFirst()) Mark("first_token", now, decode_.name);
  Emit(tokens.choice(), tokens, due - first, transition);
  return transition;
}

// All but the first `skip`.
void Request::Emit(int choice, const pb::Tokens& tokens, int skip, Transition& transition) {
  const int count = tokens.token_ids_size();
  const bool logprobs = tokens.logprobs_size() == count;
  pb::Tokens& fresh = transition.tokens.emplace_back();
  fresh.set_choice(choice);
  fresh.set_first_index(emitted_[size_t(choice)]);
  if (!HasAnyFirst()) *fresh.mutable_prompt_logprobs() = tokens.prompt_logprobs();
  for (int i = skip; i < count; ++i) {
    fresh.add_token_ids(tokens.token_ids(i));
    if (logprobs) *fresh.add_logprobs() = tokens.logprobs(i);
  }
  emitted_[size_t(choice)] += count - skip;
}

Transition Request::OnCommitted(const Origin& from, const pb::Committed& committed, absl::Time now) {
  if (Find(from) != &decode_ || !split() || committed_) return Ignored();
  if (state_ == RequestState::kReserved || committed.lease_id() != lease_) {
    return Broken(decode_, "the KV was committed to another lease", now);
  }
  committed_ = true;
  transfer_bytes_ = committed.bytes();
  exposed_transfer_ms_ = committed.exposed_transfer_ms();
  Mark("committed", now, decode_.name, committed.bytes());
  if (state_ == RequestState::kHandingOff) state_ = RequestState::kDecoding;
  return {};
}

Transition Request::OnFinished(const Origin& from, const pb::Finished& finished, absl::Time now) {
  Side* side = Find(from);
  if (side == nullptr) return Ignored();
  const int choice = finished.choice();
  if (choice < 0 || choice >= int(emitted_.size()) || finished.reason() == pb::FINISH_REASON_UNSPECIFIED ||
      (emitted_[size_t(choice)] == 0 && held_[size_t(choice)].token_ids_size() == 0)) {
    return Broken(*side, absl::StrFormat("choice %d finished without tokens or reason", choice), now);
  }
  // Of a split choice exactly one of them tells the end: P if token 0 was all, D if it has the KV. If nothing goes on,
  // D never gets it.
  const bool alone = emitted_[size_t(choice)] == 1 && held_[size_t(choice)].token_ids_size() == 0;
  const bool its = side == &decode_ ? committed_ : alone && !(finished.last() && committed_);
  if (split() && !its) return Broken(*side, "finished an answer that was not its to finish", now);
  if (reasons_[size_t(choice)] == pb::FINISH_REASON_UNSPECIFIED) reasons_[size_t(choice)] = finished.reason();
  cached_tokens_ = std::max(cached_tokens_, finished.cached_tokens());
  if (finished.last()) return side == &prefill_ ? FinishedByPrefill(now) : FinishedByDecode(now);
  if (!Complete()) return {};
  // What still runs has been stopped here, or D was faster than the word of P.
  if (!all_decoded_) return OnEnded(absl::OkStatus(), now);
  Transition transition;
  Leave(prefill_, transition);
  Finish(RequestState::kDone, absl::OkStatus(), now, transition);
  return transition;
}

Transition Request::ChoiceMissing(const Side& side, absl::Time now, Transition transition) {
  return Fail(absl::InternalError(absl::StrCat("worker ", side.name, ": a choice is missing")), now,
              std::move(transition));
}

// The answer is over with its first token: D's lease was for nothing.
Transition Request::FinishedByPrefill(absl::Time now) {
  Transition transition;
  Close(prefill_, transition);
  if (!Complete()) return ChoiceMissing(prefill_, now, std::move(transition));
  Release(transition);
  Finish(RequestState::kDone, absl::OkStatus(), now, transition);
  return transition;
}

Transition Request::FinishedByDecode(absl::Time now) {
  Transition transition;
  Close(decode_, transition);
  all_decoded_ = true;
  if (!Complete()) {
    // Token 0 of a choice, or the end of one that was over with it, is on its way from P.
    if (split() && prefill_.state == Side::kOpen) return transition;
    if (!prefill_loss_.ok()) return Fail(prefill_loss_, now, std::move(transition));
    return ChoiceMissing(decode_, now, std::move(transition));
  }
  Leave(prefill_, transition);
  Finish(RequestState::kDone, absl::OkStatus(), now, transition);
  return transition;
}

Transition Request::OnFailed(const Origin& from, const pb::Failed& failed, absl::Time now) {
  Side* side = Find(from);
  if (side == nullptr) return Ignored();
  Transition transition;
  Close(*side, transition);
  // D has everything it needs: P's trouble is its own.
  if (side == &prefill_ && committed_ && HasAllFirst() && !all_decoded_) return transition;
  // P has ended the transfer by itself, which is what D heard first. P says what it was: a complete answer, or an
  // error.
  if (side == &decode_ && split() && !committed_ && prefill_.state == Side::kOpen &&
      failed.error().reason() == pb::CANCELLED_BY_CLIENT) {
    return transition;
  }
  absl::Status why = ToStatus(failed.error(), side->name);
  if (side == &decode_ && !committed_ && !prefill_loss_.ok()) why = prefill_loss_;  // the first cause
  return Fail(std::move(why), now, std::move(transition));
}

// A worker's clock starts when the request reaches it. Its entries are put on the router's clock by the time at which
// the request was sent there, which makes them early by the way there; that is small, and no order of different
// workers' entries hangs on it.
Transition Request::OnProgress(const Origin& from, const pb::Progress& progress, absl::Time now) {
  Side* side = Find(from);
  if (side == nullptr) return Ignored();
  const double sent_ms = absl::ToDoubleMilliseconds(side->sent - submit_.received);
  const double now_ms = absl::ToDoubleMilliseconds(now - submit_.received);
  Transition transition;
  for (const pb::TimelineEvent& event : progress.events()) {
    if (event.name() == "transfer_done" && side == &prefill_) {
      if (!HasAllFirst() || (decode_.state == Side::kOver && !all_decoded_)) {
        return Broken(prefill_, "handed over what nobody waited for", now);
      }
      Close(prefill_, transition);
      if (all_decoded_) return ChoiceMissing(prefill_, now, std::move(transition));
    }
    // The router has its own entries of these: when the client could know.
    if (event.name() == "first_token" || event.name() == "committed") continue;
    if (timeline_.size() >= kMaxTimeline) continue;
    pb::TimelineEvent& entry = timeline_.emplace_back(event);
    entry.set_at_ms(std::clamp(sent_ms + event.at_ms(), sent_ms, now_ms));
    entry.set_worker(side->name);
  }
  return transition;
}

// ---- what else happens ----

Transition Request::OnWorkerLost(uint64_t incarnation, const std::string& why, absl::Time now) {
  if (over() || state_ == RequestState::kQueued || !Involves(incarnation)) return Ignored();
  Side& side = decode_.incarnation == incarnation ? decode_ : prefill_;
  const bool knew = side.state == Side::kOpen;
  Transition transition;
  Close(side, transition);
  if (&side == &prefill_ && !knew) return Requeue(std::move(transition));
  absl::Status loss =
      absl::UnavailableError(absl::StrFormat("the worker was lost while the request was %s after %d tokens: %s",
                                             state_ == RequestState::kReserved ? "being reserved" : StateName(state_),
                                             std::accumulate(emitted_.begin(), emitted_.end(), 0), why));
  // P has given what the client needs of it. D has all of the KV, or will say that it will never have it.
  if (&side == &prefill_ && split() && HasAllFirst() && decode_.state == Side::kOpen) {
    prefill_loss_ = std::move(loss);
    return transition;
  }
  return Fail(std::move(loss), now, std::move(transition));
}

Transition Request::OnStopped(int choice, absl::Time now) {
  if (over() || choice < 0 || choice >= int(reasons_.size()) || emitted_[size_t(choice)] == 0) return Ignored();
  pb::FinishReason& reason = reasons_[size_t(choice)];
  if (reason == pb::FINISH_REASON_UNSPECIFIED) reason = pb::FINISH_REASON_STOP;
  return Complete() ? OnEnded(absl::OkStatus(), now) : Transition();
}

Transition Request::OnEnded(const absl::Status& why, absl::Time now) {
  if (over()) return Ignored();
  if (!why.ok()) return Fail(why, now);
  for (pb::FinishReason& reason : reasons_) {
    if (reason == pb::FINISH_REASON_UNSPECIFIED) reason = pb::FINISH_REASON_STOP;
  }
  Transition transition;
  Cancel(decode_, "the answer is complete", transition);
  Cancel(prefill_, "the answer is complete", transition);
  Finish(RequestState::kDone, absl::OkStatus(), now, transition);
  return transition;
}

// ---- letting go ----

void Request::Close(Side& side, Transition& transition) {
  if (side.state != Side::kPromised && side.state != Side::kOpen) return;
  transition.freed.push_back(side.incarnation);
  side.state = Side::kOver;
}

void Request::Cancel(Side& side, const std::string& why, Transition& transition) {
  if (side.state == Side::kOpen) {
    ToWorker& out = transition.to_workers.emplace_back();
    out.incarnation = side.incarnation;
    *out.message.mutable_cancel()->mutable_key() = Key();
    out.message.mutable_cancel()->set_why(why);
    return Leave(side, transition);
  }
  Close(side, transition);
}

void Request::Release(Transition& transition) {
  if (decode_.state != Side::kOpen) return;
  ToWorker& out = transition.to_workers.emplace_back();
  out.incarnation = decode_.incarnation;
  *out.message.mutable_release()->mutable_key() = Key();
  out.message.mutable_release()->set_lease_id(lease_);
  Close(decode_, transition);  // a release is not answered
}

void Request::Leave(Side& side, Transition& transition) {
  if (side.state != Side::kOpen) return;
  transition.leaving.push_back(side.incarnation);
  side.state = Side::kOver;
}

Transition Request::Fail(absl::Status status, absl::Time now, Transition transition) {
  Cancel(decode_, std::string(status.message()), transition);
  Cancel(prefill_, std::string(status.message()), transition);
  Finish(RequestState::kFailed, std::move(status), now, transition);
  return transition;
}

Transition Request::Broken(const Side& side, const std::string& what, absl::Time now) {
  return Fail(absl::InternalError(absl::StrCat("worker ", side.name, ": ", what)), now);
}

void Request::Finish(RequestState state, absl::Status status, absl::Time now, Transition& transition) {
  state_ = state;
  Mark("done", now, decode_.state == Side::kNone ? prefill_.name : decode_.name);
  transition.end = std::move(status);
}

void Request::Mark(const char* event, absl::Time now, const std::string& worker, int64_t amount) {
  pb::TimelineEvent& entry = timeline_.emplace_back();
  entry.set_name(event);
  entry.set_at_ms(absl::ToDoubleMilliseconds(now - submit_.received));
  entry.set_worker(worker);
  entry.set_amount(amount);
}

ClientEnd Request::End(const absl::Status& status, absl::Time now) const {
  ClientEnd end{.call = submit_.call,
                .at = now,
                .status = status,
                .retry_after = absl::ZeroDuration(),
                .reasons = reasons_,
                .cached_tokens = cached_tokens_,
                .timeline = timeline_,
                .transfer_bytes = transfer_bytes_,
                .exposed_transfer_ms = exposed_transfer_ms_};
  // Workers' entries come late.
  std::stable_sort(end.timeline.begin(), end.timeline.end(),
                   [](const auto& a, const auto& b) { return a.at_ms() < b.at_ms(); });
  return end;
}

}  // namespace sluice::router
