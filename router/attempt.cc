#include "router/attempt.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "router/worker_error.h"

namespace sluice::router {
namespace {

AttemptStep Ignored() {
  AttemptStep step;
  step.ignored = true;
  return step;
}

}  // namespace

Attempt::Attempt(RequestRecord& record, int number, int first, int count, const Assignment& assignment)
    : record_(&record), number_(number), first_(first), base_(record.answer.emitted(first)), held_(size_t(count)) {
  const auto side = [](const Assignment::Worker& worker) {
    return Side{worker.incarnation == 0 ? Side::kNone : Side::kPromised, worker.incarnation, worker.name, {}};
  };
  decode_ = side(assignment.decode);
  prefill_ = side(assignment.prefill);
}

bool Attempt::Involves(uint64_t incarnation) const {
  const auto is = [incarnation](const Side& side) {
    return side.incarnation == incarnation && (side.state == Side::kPromised || side.state == Side::kOpen);
  };
  return is(decode_) || is(prefill_);
}

bool Attempt::HasAllFirst() const {
  for (int c = first_; Mine(c); ++c) {
    if (!HasFirst(c)) return false;
  }
  return true;
}

bool Attempt::HasAnyFirst() const {
  for (int c = first_; Mine(c); ++c) {
    if (HasFirst(c)) return true;
  }
  return false;
}

bool Attempt::Complete() const {
  if (!HasAllFirst()) return false;
  for (int c = first_; Mine(c); ++c) {
    if (!answer().over(c)) return false;
  }
  return true;
}

Attempt::Side* Attempt::Find(const Origin& from) {
  if (over() || from.attempt != number_) return nullptr;
  for (Side* side : {&decode_, &prefill_}) {
    if (side->state == Side::kOpen && side->incarnation == from.incarnation) return side;
  }
  return nullptr;
}

// ---- the way to the workers ----

pb::RequestKey Attempt::Key() const {
  pb::RequestKey key;
  key.set_request_id(record_->wire_id);
  key.set_attempt(number_);
  return key;
}

int64_t Attempt::RemainingMs(absl::Time now) const {
  if (record_->submit.deadline == absl::InfiniteFuture()) return 0;
  return std::max<int64_t>(1, absl::ToInt64Milliseconds(record_->submit.deadline - now));
}

ToWorker Attempt::Start(absl::Time now) {
  if (decode_.state == Side::kNone) {
    state_ = State::kPrefilling;
    prefill_.state = Side::kOpen;
    prefill_.sent = now;
    record_->timeline.Mark("prefilling", now, prefill_.name);
    return {prefill_.incarnation, PrefillMessage(nullptr, now)};
  }
  decode_.state = Side::kOpen;
  decode_.sent = now;
  ToWorker out{decode_.incarnation, {}};
  pb::Reserve& reserve = *out.message.mutable_reserve();
  *reserve.mutable_key() = Key();
  *reserve.mutable_sequence() = answer().Remaining(first_, int(held_.size()));
  prompt_tokens_ = reserve.sequence().tokens_size();
  reserve.set_compute_prompt(!split());
  const int left = reserve.sequence().sampling().max_tokens() - base_;
  reserve.set_headroom_tokens(record_->headroom_tokens > 0 ? std::min(record_->headroom_tokens, left) : left);
  reserve.set_remaining_ms(RemainingMs(now));
  reserve.set_prefill_incarnation(prefill_.incarnation);
  return out;
}

pb::RouterMessage Attempt::PrefillMessage(const pb::LeaseGranted* granted, absl::Time now) const {
  pb::RouterMessage message;
  pb::Prefill& prefill = *message.mutable_prefill();
  *prefill.mutable_key() = Key();
  *prefill.mutable_sequence() = answer().Remaining(first_, int(held_.size()));
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

AttemptStep Attempt::OnGranted(const Origin& from, const pb::LeaseGranted& granted, absl::Time now) {
  if (Find(from) != &decode_ || state_ != State::kReserved) return Ignored();
  lease_ = granted.lease_id();
  lease_time_ = absl::Milliseconds(granted.lease_ms());
  record_->timeline.Mark("reserved", now, decode_.name);
  AttemptStep step;
  if (!split()) {
    state_ = State::kDecoding;
    return step;
  }
  if (granted.prefix_tokens() < 0 || granted.prefix_tokens() >= prompt_tokens_) {
    return Broken(decode_, absl::StrFormat("%d tokens of the prompt are there already", granted.prefix_tokens()));
  }
  state_ = State::kPrefilling;
  prefill_.state = Side::kOpen;
  prefill_.sent = now;
  record_->timeline.Mark("prefilling", now, prefill_.name);
  step.to_workers.push_back({prefill_.incarnation, PrefillMessage(&granted, now)});
  return step;
}

AttemptStep Attempt::OnRefused(const Origin& from, const pb::Refused& refused) {
  Side* side = Find(from);
  if (side == nullptr || HasAnyFirst() || committed_) return Ignored();
  if (state_ != (side == &decode_ ? State::kReserved : State::kPrefilling)) return Ignored();
  const pb::ErrorReason reason = refused.error().reason();
  AttemptStep step;
  Close(*side, step);
  if (!MayPass(reason) && reason != pb::NEVER_FITS) {
    return Fail(ToStatus(refused.error(), side->name), MayMove(reason), *side, std::move(step));
  }
  step = ReleaseAll(std::move(step));
  step.outcome = {.kind = AttemptOutcome::kRefused};
  if (reason == pb::NEVER_FITS) step.outcome->never_fits = side->incarnation;
  return step;
}

// P has refused, is lost or knows nothing.
AttemptStep Attempt::ReleaseAll(AttemptStep step) {
  Close(prefill_, step);
  if (lease_ != 0) Release(step);
  Cancel(decode_, "another prefill worker will be chosen", step);
  state_ = State::kOver;
  return step;
}

AttemptStep Attempt::OnTokens(const Origin& from, const pb::Tokens& tokens, absl::Time now) {
  Side* side = Find(from);
  if (side == nullptr) return Ignored();
  if (!Mine(tokens.choice())) {
    return Broken(*side, absl::StrFormat("tokens of choice %d, which was not asked for", tokens.choice()));
  }
  const bool computes_prompt = side == &prefill_ || !split();
  if (const int got = tokens.prompt_logprobs_size(); computes_prompt && !HasAnyFirst() && got != PromptLogprobsDue()) {
    return Broken(*side,
                  absl::StrFormat("%d log-probabilities of the prompt, where %d were due", got, PromptLogprobsDue()));
  }
  return side == &prefill_ ? OnFirstToken(tokens, now) : OnDecoded(tokens, now);
}

int Attempt::PromptLogprobsDue() const {
  const pb::SequenceSpec& asked = record_->submit.sequence;
  return asked.sampling().has_prompt_logprobs() && !answer().begun() ? asked.num_prompt_tokens() - 1 : 0;
}

AttemptStep Attempt::OnFirstToken(const pb::Tokens& tokens, absl::Time now) {
  const int choice = tokens.choice();
  if (tokens.first_index() != base_ || tokens.token_ids_size() != 1) {
    return Broken(prefill_, absl::StrFormat("%d tokens from token %d on, where token %d was due",
                                            tokens.token_ids_size(), tokens.first_index(), base_));
  }
  if (HasFirst(choice)) return Ignored();
  AttemptStep step;
  if (!answer().begun()) record_->timeline.Mark("first_token", now, prefill_.name);
  step.tokens.push_back(record_->answer.Append(choice, tokens, 0));
  const Held held = std::exchange(HeldOf(choice), {});
  if (held.tokens.token_ids_size() > 0) step.tokens.push_back(record_->answer.Append(choice, held.tokens, 0));
  if (held.reason != pb::FINISH_REASON_UNSPECIFIED) record_->answer.End(choice, held.reason);
  if (!HasAllFirst() || !split()) return step;
  state_ = committed_ ? State::kDecoding : State::kHandingOff;
  if (!all_decoded_ || !Complete()) return step;
  Leave(prefill_, step);
  return Done(std::move(step));
}

// Of a decode worker from the second token on, of one that computes the prompt from the first on.
AttemptStep Attempt::OnDecoded(const pb::Tokens& tokens, absl::Time now) {
  const int choice = tokens.choice();
  if (state_ == State::kReserved) return Broken(decode_, "tokens before the lease was granted");
  if (split() && !committed_) return Broken(decode_, "tokens before the KV was committed");
  if (answer().over(choice) || HeldOf(choice).reason != pb::FINISH_REASON_UNSPECIFIED) return Ignored();
  const bool hold = split() && !HasFirst(choice);
  const int due = hold ? base_ + 1 + HeldOf(choice).tokens.token_ids_size() : answer().emitted(choice);
  const int first = tokens.first_index();
  const int count = tokens.token_ids_size();
  if (first > due) {
    // What is missing never comes again on an ordered stream; an answer with a hole is no answer.
    return Broken(decode_, absl::StrFormat("token %d came, token %d is missing", first, due));
  }
  if (first < 0 || first + count <= due) return Ignored();
  if (const int most = record_->submit.sequence.sampling().max_tokens(); first + count > most) {
    return Broken(decode_, absl::StrFormat("more than max_tokens = %d tokens", most));
  }
  AttemptStep step;
  if (hold) {
    pb::Tokens& held = HeldOf(choice).tokens;
    held.set_choice(choice);
    for (int i = due - first; i < count; ++i) {
      held.add_token_ids(tokens.token_ids(i));
      if (tokens.logprobs_size() == count) *held.add_logprobs() = tokens.logprobs(i);
    }
    return step;
  }
  if (!answer().begun()) record_->timeline.Mark("first_token", now, decode_.name);
  step.tokens.push_back(record_->answer.Append(choice, tokens, due - first));
  return step;
}

AttemptStep Attempt::OnCommitted(const Origin& from, const pb::Committed& committed, absl::Time now) {
  if (Find(from) != &decode_ || !split() || committed_) return Ignored();
  if (state_ == State::kReserved || committed.lease_id() != lease_) {
    return Broken(decode_, "the KV was committed to another lease");
  }
  committed_ = true;
  record_->transfer_bytes += committed.bytes();
  record_->exposed_transfer_ms += committed.exposed_transfer_ms();
  record_->timeline.Mark("committed", now, decode_.name, committed.bytes());
  if (state_ == State::kHandingOff) state_ = State::kDecoding;
  return {};
}

AttemptStep Attempt::OnFinished(const Origin& from, const pb::Finished& finished) {
  Side* side = Find(from);
  if (side == nullptr) return Ignored();
  const int choice = finished.choice();
  if (!Mine(choice) || finished.reason() == pb::FINISH_REASON_UNSPECIFIED ||
      (!HasFirst(choice) && HeldOf(choice).tokens.token_ids_size() == 0)) {
    return Broken(*side, absl::StrFormat("choice %d finished without tokens or reason", choice));
  }
  // Of a split choice exactly one of them tells the end: P if its token was all, D if it has the KV. If nothing goes
  // on, D never gets it.
  const bool alone = answer().emitted(choice) == base_ + 1 && HeldOf(choice).tokens.token_ids_size() == 0;
  const bool its = side == &decode_ ? committed_ : alone && !(finished.last() && committed_);
  if (split() && !its) return Broken(*side, "finished an answer that was not its to finish");
  if (HasFirst(choice)) {
    record_->answer.End(choice, finished.reason());
  } else {
    HeldOf(choice).reason = finished.reason();
  }
  // Of an attempt that continues an answer, tokens of that are no part of the prompt.
  const int prompt = record_->submit.sequence.num_prompt_tokens();
  record_->cached_tokens = std::max(record_->cached_tokens, std::min(finished.cached_tokens(), prompt));
  if (finished.last()) return side == &prefill_ ? FinishedByPrefill() : FinishedByDecode();
  if (!Complete()) return {};
  // What still runs has been stopped here, or D was faster than the word of P.
  if (!all_decoded_) return Done(Abandon("the answer is complete"));
  AttemptStep step;
  Leave(prefill_, step);
  return Done(std::move(step));
}

AttemptStep Attempt::ChoiceMissing(const Side& side, AttemptStep step) {
  return Fail(absl::InternalError(absl::StrCat("worker ", side.name, ": a choice is missing")), false, side,
              std::move(step));
}

// The answer is over with its first token: D's lease was for nothing.
AttemptStep Attempt::FinishedByPrefill() {
  AttemptStep step;
  Close(prefill_, step);
  if (!Complete()) return ChoiceMissing(prefill_, std::move(step));
  Release(step);
  return Done(std::move(step));
}

AttemptStep Attempt::FinishedByDecode() {
  AttemptStep step;
  Close(decode_, step);
  all_decoded_ = true;
  if (!Complete()) {
    // The first token of a choice, or the end of one that was over with it, is on its way from P.
    if (split() && prefill_.state == Side::kOpen) return step;
    if (!prefill_loss_.ok()) return Fail(prefill_loss_, true, prefill_, std::move(step));
    return ChoiceMissing(decode_, std::move(step));
  }
  Leave(prefill_, step);
  return Done(std::move(step));
}

AttemptStep Attempt::OnFailed(const Origin& from, const pb::Failed& failed) {
  Side* side = Find(from);
  if (side == nullptr) return Ignored();
  const pb::ErrorReason reason = failed.error().reason();
  AttemptStep step;
  Close(*side, step);
  // D has everything it needs: P's trouble is its own.
  if (side == &prefill_ && committed_ && HasAllFirst() && !all_decoded_) return step;
  // P has ended the transfer by itself, which is what D heard first. P says what it was: a complete answer, or an
  // error.
  if (side == &decode_ && split() && !committed_ && prefill_.state == Side::kOpen &&
      reason == pb::CANCELLED_BY_CLIENT) {
    return step;
  }
  if (side == &decode_ && !committed_ && !prefill_loss_.ok()) {  // the first cause
    return Fail(prefill_loss_, true, prefill_, std::move(step));
  }
  step = Fail(ToStatus(failed.error(), side->name), MayMove(reason), *side, std::move(step));
  if (split() &&
      (reason == pb::TRANSFER_FAILED || reason == pb::CHECKSUM_MISMATCH || reason == pb::CANCELLED_BY_CLIENT)) {
    step.outcome->blamed = {decode_.incarnation, prefill_.incarnation};  // who of them it was is not known
  }
  return step;
}

AttemptStep Attempt::OnProgress(const Origin& from, const pb::Progress& progress, absl::Time now) {
  Side* side = Find(from);
  if (side == nullptr) return Ignored();
  AttemptStep step;
  for (const pb::TimelineEvent& event : progress.events()) {
    if (event.name() == "transfer_done" && side == &prefill_) {
      if (!HasAllFirst() || (decode_.state == Side::kOver && !all_decoded_)) {
        return Broken(prefill_, "handed over what nobody waited for");
      }
      Close(prefill_, step);
      if (all_decoded_) return ChoiceMissing(prefill_, std::move(step));
    }
    // The router has its own entries of these: when the client could know.
    if (event.name() == "first_token" || event.name() == "committed") continue;
    record_->timeline.Add(event, side->sent, now, side->name);
  }
  return step;
}

// ---- what else happens ----

AttemptStep Attempt::OnWorkerLost(uint64_t incarnation, const std::string& why) {
  if (over() || !Involves(incarnation)) return Ignored();
  Side& side = decode_.incarnation == incarnation ? decode_ : prefill_;
  const bool knew = side.state == Side::kOpen;
  AttemptStep step;
  Close(side, step);
  if (&side == &prefill_ && !knew) {
    step = ReleaseAll(std::move(step));
    step.outcome = {.kind = AttemptOutcome::kRefused};
    return step;
  }
  absl::Status loss = absl::UnavailableError(
      absl::StrFormat("the worker was lost while the request was %s after %d tokens: %s",
                      state_ == State::kReserved ? "being reserved" : Name(state_), record_->answer.emitted(), why));
  // P has given what the client needs of it. D has all of the KV, or will say that it will never have it.
  if (&side == &prefill_ && split() && HasAllFirst() && decode_.state == Side::kOpen) {
    prefill_loss_ = std::move(loss);
    return step;
  }
  return Fail(std::move(loss), true, side, std::move(step));
}

AttemptStep Attempt::Abandon(const std::string& why) {
  if (over()) return Ignored();
  AttemptStep step;
  Cancel(decode_, why, step);
  Cancel(prefill_, why, step);
  state_ = State::kOver;
  return step;
}

// ---- letting go ----

void Attempt::Close(Side& side, AttemptStep& step) {
  if (side.state != Side::kPromised && side.state != Side::kOpen) return;
  step.freed.push_back(side.incarnation);
  side.state = Side::kOver;
}

void Attempt::Cancel(Side& side, const std::string& why, AttemptStep& step) {
  if (side.state != Side::kOpen) return Close(side, step);
  ToWorker& out = step.to_workers.emplace_back();
  out.incarnation = side.incarnation;
  *out.message.mutable_cancel()->mutable_key() = Key();
  out.message.mutable_cancel()->set_why(why);
  Leave(side, step);
}

void Attempt::Release(AttemptStep& step) {
  if (decode_.state != Side::kOpen) return;
  ToWorker& out = step.to_workers.emplace_back();
  out.incarnation = decode_.incarnation;
  *out.message.mutable_release()->mutable_key() = Key();
  out.message.mutable_release()->set_lease_id(lease_);
  Close(decode_, step);  // a release is not answered
}

void Attempt::Leave(Side& side, AttemptStep& step) {
  if (side.state != Side::kOpen) return;
  step.leaving.push_back(side.incarnation);
  side.state = Side::kOver;
}

AttemptStep Attempt::Fail(absl::Status why, bool may_move, const Side& blamed, AttemptStep step) {
  AttemptOutcome outcome{.kind = AttemptOutcome::kFailed, .why = std::move(why), .may_move = may_move};
  outcome.blamed.push_back(blamed.incarnation);
  const std::string words(outcome.why.message());
  Cancel(decode_, words, step);
  Cancel(prefill_, words, step);
  state_ = State::kOver;
  step.outcome = std::move(outcome);
  return step;
}

AttemptStep Attempt::Broken(const Side& side, const std::string& what) {
  return Fail(absl::InternalError(absl::StrCat("worker ", side.name, ": ", what)), false, side);
}

AttemptStep Attempt::Done(AttemptStep step) {
  state_ = State::kOver;
  step.outcome = {.kind = AttemptOutcome::kComplete};
  return step;
}

const char* Attempt::Name(State state) {
  switch (state) {
    case State::kReserved:
      return "reserved";
    case State::kPrefilling:
      return "prefilling";
    case State::kHandingOff:
      return "handing_off";
    case State::kDecoding:
      return "decoding";
    case State::kOver:
      return "over";
  }
  return "unknown";
}

}  // namespace sluice::router
