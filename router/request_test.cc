#include "router/request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "router/worker_error.h"

namespace sluice::router {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const absl::Time kStart = absl::UnixEpoch();
constexpr uint64_t kWorker = 77;

// Who never moves: what happens to an attempt is what happens to the request.
const RequestOptions kNoMoves{.moves = {.in_a_row = 0}};

Request MakeRequest() {
  Submit submit{.call = 1, .request_id = "r", .sequence = {}, .received = kStart};
  for (int i = 0; i < 5; ++i) submit.sequence.add_tokens(i);
  submit.sequence.set_num_prompt_tokens(5);
  submit.sequence.mutable_sampling()->set_max_tokens(8);
  submit.sequence.mutable_sampling()->set_n(1);
  return Request(std::move(submit), "r/1", kNoMoves);
}

pb::Tokens Tokens(int first, std::vector<int> ids) {
  pb::Tokens tokens;
  tokens.set_first_index(first);
  for (int id : ids) tokens.add_token_ids(id);
  return tokens;
}

pb::LeaseGranted Granted() {
  pb::LeaseGranted granted;
  granted.set_lease_id(9);
  granted.set_lease_ms(3000);
  return granted;
}

pb::Refused Refused(pb::ErrorReason reason) {
  pb::Refused refused;
  refused.mutable_error()->set_code(8);
  refused.mutable_error()->set_reason(reason);
  refused.mutable_error()->set_message("no");
  return refused;
}

pb::Failed Failed(int code, pb::ErrorReason reason = pb::INTERNAL_ERROR) {
  pb::Failed failed;
  failed.mutable_error()->set_code(code);
  failed.mutable_error()->set_reason(reason);
  failed.mutable_error()->set_message("boom");
  return failed;
}

pb::Finished Finished() {
  pb::Finished finished;
  finished.set_reason(pb::FINISH_REASON_LENGTH);
  finished.set_last(true);
  return finished;
}

constexpr Origin kFirst{kWorker, 1};

std::vector<int> Ids(const Transition& transition) {
  std::vector<int> ids;
  for (const pb::Tokens& tokens : transition.tokens) {
    ids.insert(ids.end(), tokens.token_ids().begin(), tokens.token_ids().end());
  }
  return ids;
}

const Assignment kBoth{{kWorker, "both h:1"}, {}};

bool Cancels(const Transition& transition) {
  return transition.to_workers.size() == 1 && transition.to_workers[0].incarnation == kWorker &&
         transition.to_workers[0].message.has_cancel() && transition.leaving.size() == 1 &&
         transition.leaving[0].incarnation == kWorker;
}

bool Frees(const Transition& transition) {
  return transition.freed.size() == 1 && transition.freed[0].incarnation == kWorker;
}

// ---- the table: every state x everything that may end a request ----

const std::vector<RequestState> kStates = {RequestState::kQueued, RequestState::kReserved, RequestState::kDecoding,
                                           RequestState::kDone, RequestState::kFailed};

Request InState(RequestState state) {
  Request request = MakeRequest();
  if (state == RequestState::kQueued) return request;
  request.Dispatch(0, kBoth, kStart);
  if (state == RequestState::kReserved) return request;
  request.OnGranted(kFirst, Granted(), kStart);
  request.OnTokens(kFirst, Tokens(0, {1, 2}), kStart);
  if (state == RequestState::kDone) request.OnFinished(kFirst, Finished(), kStart);
  if (state == RequestState::kFailed) request.OnFailed(kFirst, Failed(13), kStart);
  return request;
}

struct Expected {
  bool ignored;
  bool cancels;      // the worker is told
  bool worker_free;  // the worker holds nothing any more
  bool requeued;
  absl::StatusCode end;  // kOk: no end
};

void Check(RequestState state, const char* event, const std::function<Transition(Request&)>& apply,
           const Expected& expected) {
  SCOPED_TRACE(absl::StrCat(StateName(state), " x ", event));
  Request request = InState(state);
  ASSERT_EQ(request.state(), state);
  const Transition transition = apply(request);
  EXPECT_EQ(transition.ignored, expected.ignored);
  EXPECT_EQ(Cancels(transition), expected.cancels);
  EXPECT_EQ(Frees(transition), expected.worker_free);
  EXPECT_EQ(transition.requeue.size(), expected.requeued ? 1u : 0u);
  ASSERT_EQ(transition.end.has_value(), expected.end != absl::StatusCode::kOk);
  if (transition.end.has_value()) {
    EXPECT_EQ(transition.end->code(), expected.end);
    EXPECT_EQ(request.state(), RequestState::kFailed);
    EXPECT_FALSE(apply(request).end.has_value()) << "ends once";
  }
}

TEST(RequestTest, EveryStateTimesEveryEnd) {
  const auto cancel = [](Request& r) { return r.OnEnded(absl::CancelledError("gone"), kStart); };
  const auto deadline = [](Request& r) { return r.OnEnded(absl::DeadlineExceededError("late"), kStart); };
  const auto lost = [](Request& r) { return r.OnWorkerLost(kWorker, "it died", kStart); };
  const auto refused = [](Request& r) { return r.OnRefused(kFirst, Refused(pb::NO_BLOCKS), kStart); };
  const auto invalid = [](Request& r) { return r.OnRefused(kFirst, Refused(pb::INVALID_REQUEST), kStart); };
  const auto failed = [](Request& r) { return r.OnFailed(kFirst, Failed(13), kStart); };
  const Expected ignored{true, false, false, false, absl::StatusCode::kOk};
  using enum RequestState;
  using enum absl::StatusCode;

  Check(kQueued, "cancel", cancel, {false, false, false, false, kCancelled});
  Check(kQueued, "deadline", deadline, {false, false, false, false, kDeadlineExceeded});
  Check(kQueued, "lost", lost, ignored);
  Check(kQueued, "refused", refused, ignored);
  Check(kQueued, "failed", failed, ignored);

  Check(kReserved, "cancel", cancel, {false, true, false, false, kCancelled});
  Check(kReserved, "deadline", deadline, {false, true, false, false, kDeadlineExceeded});
  Check(kReserved, "lost", lost, {false, false, true, false, kUnavailable});
  Check(kReserved, "refused", refused, {false, false, true, true, kOk});
  Check(kReserved, "invalid", invalid, {false, false, true, false, kInvalidArgument});
  Check(kReserved, "failed", failed, {false, false, true, false, kInternal});

  Check(kDecoding, "cancel", cancel, {false, true, false, false, kCancelled});
  Check(kDecoding, "deadline", deadline, {false, true, false, false, kDeadlineExceeded});
  Check(kDecoding, "lost", lost, {false, false, true, false, kUnavailable});
  Check(kDecoding, "refused", refused, ignored);
  Check(kDecoding, "failed", failed, {false, false, true, false, kInternal});

  for (RequestState over : {kDone, kFailed}) {
    Check(over, "cancel", cancel, ignored);
    Check(over, "deadline", deadline, ignored);
    Check(over, "lost", lost, ignored);
    Check(over, "refused", refused, ignored);
    Check(over, "failed", failed, ignored);
  }
}

// ---- the good path ----

TEST(RequestTest, LifeOfARequest) {
  Request request = MakeRequest();
  const pb::RouterMessage message = request.Dispatch(0, kBoth, kStart + absl::Milliseconds(5)).message;
  ASSERT_TRUE(message.has_reserve());
  EXPECT_TRUE(message.reserve().compute_prompt());
  EXPECT_EQ(message.reserve().key().request_id(), "r/1");
  EXPECT_EQ(message.reserve().key().attempt(), 1);
  EXPECT_EQ(message.reserve().headroom_tokens(), 8);
  EXPECT_EQ(message.reserve().remaining_ms(), 0);
  EXPECT_EQ(message.reserve().sequence().tokens_size(), 5);

  request.OnGranted(kFirst, Granted(), kStart + absl::Milliseconds(6));
  EXPECT_EQ(request.state(), RequestState::kDecoding);
  EXPECT_THAT(request.LeasesAt(kWorker), ElementsAre(9u));
  EXPECT_THAT(Ids(request.OnTokens(kFirst, Tokens(0, {10}), kStart + absl::Milliseconds(30))), ElementsAre(10));
  EXPECT_THAT(Ids(request.OnTokens(kFirst, Tokens(1, {11, 12}), kStart)), ElementsAre(11, 12));
  const Transition end = request.OnFinished(kFirst, Finished(), kStart + absl::Milliseconds(90));
  EXPECT_TRUE(Frees(end));
  ASSERT_TRUE(end.end.has_value());
  EXPECT_TRUE(end.end->ok());

  const ClientEnd last = request.End(*end.end, kStart);
  EXPECT_THAT(last.reasons, ElementsAre(pb::FINISH_REASON_LENGTH));
  std::vector<std::string> names;
  for (const auto& event : last.timeline) names.push_back(absl::StrCat(event.name(), "@", event.at_ms()));
  EXPECT_THAT(names, ElementsAre("queued@0", "reserved@6", "first_token@30", "done@90"));
  EXPECT_EQ(last.timeline[1].worker(), "both h:1");
}

TEST(RequestTest, BlocksAreAskedForAsMuchOfTheAnswerAsIsPromised) {
  for (const auto& [headroom, asked] : {std::pair(0, 8), std::pair(3, 3), std::pair(100, 8)}) {
    Submit submit{.call = 1, .request_id = "r", .sequence = {}, .received = kStart};
    for (int i = 0; i < 5; ++i) submit.sequence.add_tokens(i);
    submit.sequence.mutable_sampling()->set_max_tokens(8);
    Request request(std::move(submit), "r/1", {.headroom_tokens = headroom});
    EXPECT_EQ(request.demand(0).headroom, headroom);
    EXPECT_EQ(request.Dispatch(0, kBoth, kStart).message.reserve().headroom_tokens(), asked);
  }
}

TEST(RequestTest, TheRecordOfWhatWasSentIsTheTruth) {
  Request request = InState(RequestState::kDecoding);  // 0 and 1 are sent
  EXPECT_TRUE(request.OnTokens(kFirst, Tokens(0, {1, 2}), kStart).ignored);
  const Transition overlap = request.OnTokens(kFirst, Tokens(1, {2, 3}), kStart);
  EXPECT_THAT(Ids(overlap), ElementsAre(3));
  EXPECT_EQ(overlap.tokens[0].first_index(), 2);
  EXPECT_TRUE(request.OnTokens({kWorker, 2}, Tokens(3, {4}), kStart).ignored) << "another attempt";
  EXPECT_TRUE(request.OnTokens({78, 1}, Tokens(3, {4}), kStart).ignored) << "another incarnation";
  EXPECT_THAT(Ids(request.OnTokens(kFirst, Tokens(3, {4}), kStart)), ElementsAre(4));
}

TEST(RequestTest, AnAnswerWithAHoleIsNoAnswer) {
  Request request = InState(RequestState::kDecoding);
  const Transition gap = request.OnTokens(kFirst, Tokens(3, {4}), kStart);
  EXPECT_TRUE(gap.tokens.empty());
  ASSERT_TRUE(gap.end.has_value());
  EXPECT_EQ(gap.end->code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(gap.end->message()), HasSubstr("token 2 is missing"));
  EXPECT_TRUE(Cancels(gap));
}

TEST(RequestTest, WhatAWorkerMustNotSay) {
  Request early = InState(RequestState::kReserved);
  EXPECT_EQ(early.OnTokens(kFirst, Tokens(0, {1}), kStart).end->code(), absl::StatusCode::kInternal);
  Request many = InState(RequestState::kDecoding);
  EXPECT_EQ(many.OnTokens(kFirst, Tokens(2, {1, 2, 3, 4, 5, 6, 7}), kStart).end->code(), absl::StatusCode::kInternal);
  Request choice = InState(RequestState::kDecoding);
  pb::Tokens other = Tokens(0, {1});
  other.set_choice(1);
  EXPECT_EQ(choice.OnTokens(kFirst, other, kStart).end->code(), absl::StatusCode::kInternal);
  Request empty = InState(RequestState::kReserved);
  empty.OnGranted(kFirst, Granted(), kStart);
  EXPECT_EQ(empty.OnFinished(kFirst, Finished(), kStart).end->code(), absl::StatusCode::kInternal);
}

TEST(RequestTest, ThePromptsLogprobsComeOnceAndWhole) {
  const auto start = [] {
    Submit submit{.call = 1, .request_id = "r", .sequence = {}, .received = kStart};
    for (int i = 0; i < 3; ++i) submit.sequence.add_tokens(i);
    submit.sequence.set_num_prompt_tokens(3);
    submit.sequence.mutable_sampling()->set_max_tokens(8);
    submit.sequence.mutable_sampling()->set_prompt_logprobs(0);
    Request request(std::move(submit), "r/1");
    request.Dispatch(0, kBoth, kStart);
    request.OnGranted(kFirst, Granted(), kStart);
    return request;
  };
  pb::Tokens tokens = Tokens(0, {4});
  tokens.add_prompt_logprobs()->mutable_sampled()->set_token_id(1);
  Request broken = start();
  const Transition few = broken.OnTokens(kFirst, tokens, kStart);
  ASSERT_TRUE(few.end.has_value());
  EXPECT_EQ(few.end->code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(few.end->message()), HasSubstr("1 log-probabilities of the prompt, where 2 were due"));
  tokens.add_prompt_logprobs()->mutable_sampled()->set_token_id(2);
  Request request = start();
  const Transition first = request.OnTokens(kFirst, tokens, kStart);
  ASSERT_EQ(first.tokens.size(), 1u);
  EXPECT_EQ(first.tokens[0].prompt_logprobs_size(), 2);
  tokens.add_token_ids(5);  // repeated, with one that is new
  const Transition second = request.OnTokens(kFirst, tokens, kStart);
  EXPECT_THAT(Ids(second), ElementsAre(5));
  EXPECT_EQ(second.tokens[0].prompt_logprobs_size(), 0);
  Request unasked = InState(RequestState::kReserved);
  unasked.OnGranted(kFirst, Granted(), kStart);
  EXPECT_TRUE(unasked.OnTokens(kFirst, tokens, kStart).end.has_value()) << "nobody asked for them";
}

TEST(RequestTest, ARefusalThatMayPassLeadsToAnotherAttempt) {
  Request request = InState(RequestState::kReserved);
  EXPECT_EQ(request.OnRefused(kFirst, Refused(pb::NO_BLOCKS), kStart).requeue.size(), 1u);
  EXPECT_EQ(request.Dispatch(0, {{78, "w2"}, {}}, kStart).message.reserve().key().attempt(), 2);
  EXPECT_TRUE(request.OnGranted(kFirst, Granted(), kStart).ignored);
  EXPECT_FALSE(request.OnGranted({78, 2}, Granted(), kStart).ignored);
  EXPECT_FALSE(request.RefusedForEver(kWorker));
}

TEST(RequestTest, NeverFitsIsRemembered) {
  Request request = InState(RequestState::kReserved);
  EXPECT_EQ(request.OnRefused(kFirst, Refused(pb::NEVER_FITS), kStart).requeue.size(), 1u);
  EXPECT_TRUE(request.RefusedForEver(kWorker));
  EXPECT_FALSE(request.RefusedForEver(78));
}

TEST(RequestTest, AStopStringEndsWellAndCancelsTheWorker) {
  Request request = InState(RequestState::kDecoding);
  const Transition end = request.OnEnded(absl::OkStatus(), kStart);
  EXPECT_TRUE(end.end->ok());
  EXPECT_TRUE(Cancels(end));
  EXPECT_EQ(request.state(), RequestState::kDone);
  EXPECT_THAT(request.End(*end.end, kStart).reasons, ElementsAre(pb::FINISH_REASON_STOP));
}

TEST(RequestTest, DeadlinesTravelAsRemainingTime) {
  Submit submit{
      .call = 1, .request_id = "r", .sequence = {}, .received = kStart, .deadline = kStart + absl::Seconds(2)};
  Request request(std::move(submit), "r/1");
  EXPECT_EQ(request.Dispatch(0, kBoth, kStart + absl::Milliseconds(500)).message.reserve().remaining_ms(), 1500);
}

TEST(ToStatusTest, TheClassOfAnErrorSurvivesTheHop) {
  const auto code = [](int wire, pb::ErrorReason reason) { return ToStatus(Failed(wire, reason).error(), "w").code(); };
  EXPECT_EQ(code(3, pb::INVALID_REQUEST), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(0, pb::DEADLINE), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(code(9, pb::LEASE_EXPIRED), absl::StatusCode::kUnavailable);
  EXPECT_EQ(code(8, pb::ERROR_REASON_UNSPECIFIED), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(code(0, pb::INTERNAL_ERROR), absl::StatusCode::kInternal);
  EXPECT_EQ(code(1, pb::CANCELLED_BY_CLIENT), absl::StatusCode::kInternal) << "the client did not cancel";
  EXPECT_EQ(code(99, pb::ERROR_REASON_UNSPECIFIED), absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace sluice::router
