// Failover: a request whose workers fail goes on elsewhere, and its client sees a pause and nothing else.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iostream>
#include <map>
#include <random>

#include "absl/strings/str_cat.h"
#include "router/request.h"

namespace sluice::router {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const absl::Time kStart = absl::UnixEpoch();
constexpr uint64_t kP = 50;
constexpr uint64_t kD = 77;
const Assignment kPair{{kD, "D"}, {kP, "P"}};
const Assignment kBoth{{kD, "D"}, {}};
constexpr int kPrompt = 5;

Request MakeRequest(int n = 1, int max_tokens = 8, MoveLimits limits = {}) {
  Submit submit{.call = 1, .request_id = "r", .sequence = {}, .received = kStart};
  for (int i = 0; i < kPrompt; ++i) submit.sequence.add_tokens(1000 + i);
  submit.sequence.set_num_prompt_tokens(kPrompt);
  submit.sequence.add_eos_token_ids(2);
  submit.sequence.mutable_sampling()->set_max_tokens(max_tokens);
  submit.sequence.mutable_sampling()->set_n(n);
  submit.sequence.mutable_sampling()->set_seed(9);
  return Request(std::move(submit), "r/1", {.moves = limits});
}

pb::LeaseGranted Granted() {
  pb::LeaseGranted granted;
  granted.set_lease_id(9);
  granted.set_lease_ms(3000);
  return granted;
}

// Token i of choice c is 100 c + 10 + i.
pb::Tokens Tokens(int choice, int first, int count) {
  pb::Tokens tokens;
  tokens.set_choice(choice);
  tokens.set_first_index(first);
  for (int i = first; i < first + count; ++i) tokens.add_token_ids(100 * choice + 10 + i);
  return tokens;
}

pb::Failed Failed(pb::ErrorReason reason) {
  pb::Failed failed;
  failed.mutable_error()->set_code(int(absl::StatusCode::kInternal));
  failed.mutable_error()->set_reason(reason);
  failed.mutable_error()->set_message("boom");
  return failed;
}

pb::Finished Finished(int choice, bool last) {
  pb::Finished finished;
  finished.set_choice(choice);
  finished.set_reason(pb::FINISH_REASON_LENGTH);
  finished.set_last(last);
  return finished;
}

std::vector<int> Legs(const Transition& t) {
  std::vector<int> legs;
  for (const auto& back : t.requeue) legs.push_back(back.leg);
  return legs;
}

// The prompt as the worker gets it, without the user's own.
std::vector<int> Emitted(const pb::SequenceSpec& spec) {
  EXPECT_EQ(spec.num_prompt_tokens(), kPrompt);
  return {spec.tokens().begin() + kPrompt, spec.tokens().end()};
}

TEST(RequestMoveTest, TheNextAttemptContinuesAfterWhatWasEmitted) {
  Request request = MakeRequest();
  request.Dispatch(0, kPair, kStart);
  request.OnGranted({kD, 1}, Granted(), kStart);
  request.OnTokens({kP, 1}, Tokens(0, 0, 1), kStart);
  pb::Committed committed;
  committed.set_lease_id(9);
  request.OnCommitted({kD, 1}, committed, kStart);
  request.OnTokens({kD, 1}, Tokens(0, 1, 2), kStart);

  const Transition lost = request.OnWorkerLost(kD, "it died", kStart + absl::Seconds(1));
  EXPECT_FALSE(lost.end.has_value());
  EXPECT_THAT(Legs(lost), ElementsAre(0));
  EXPECT_THAT(lost.blamed, ElementsAre(kD));
  ASSERT_EQ(lost.leaving.size(), 1u) << "P is told";
  EXPECT_EQ(lost.leaving[0].incarnation, kP);
  EXPECT_EQ(lost.leaving[0].attempt, 1);
  EXPECT_EQ(request.state(), RequestState::kQueued);
  EXPECT_TRUE(request.Shuns(kD));
  EXPECT_FALSE(request.Shuns(kP));
  EXPECT_EQ(request.wait_until(), kStart + absl::Seconds(31));
  EXPECT_EQ(request.demand(0).prompt_tokens, kPrompt + 3);
  EXPECT_EQ(request.demand(0).answer_tokens, 5);

  const pb::Reserve reserve = request.Dispatch(0, {{78, "D2"}, {51, "P2"}}, kStart).message.reserve();
  EXPECT_EQ(reserve.key().attempt(), 2);
  EXPECT_THAT(Emitted(reserve.sequence()), ElementsAre(10, 11, 12));
  EXPECT_EQ(reserve.sequence().sampling().max_tokens(), 8) << "counted from the prompt";
  EXPECT_EQ(reserve.sequence().sampling().seed(), 9u);
  EXPECT_EQ(reserve.headroom_tokens(), 5);
  const Transition granted = request.OnGranted({78, 2}, Granted(), kStart);
  EXPECT_THAT(Emitted(granted.to_workers.at(0).message.prefill().sequence()), ElementsAre(10, 11, 12));
  EXPECT_TRUE(request.OnTokens({kD, 1}, Tokens(0, 3, 1), kStart).ignored) << "the dead speak no more";
  EXPECT_EQ(request.OnTokens({51, 2}, Tokens(0, 3, 1), kStart).tokens.at(0).first_index(), 3);
  EXPECT_TRUE(request.OnTokens({51, 2}, Tokens(0, 3, 1), kStart).ignored);
  request.OnCommitted({78, 2}, committed, kStart);
  EXPECT_EQ(request.OnTokens({78, 2}, Tokens(0, 4, 4), kStart).tokens.at(0).token_ids_size(), 4);
  const Transition end = request.OnFinished({78, 2}, Finished(0, true), kStart);
  ASSERT_TRUE(end.end.has_value());
  const ClientEnd last = request.End(*end.end, kStart);
  EXPECT_TRUE(last.status.ok());
  EXPECT_EQ(last.moves, 1);
  EXPECT_THAT(last.timeline, ::testing::Contains(::testing::Property(&pb::TimelineEvent::name, "moved")));
}

TEST(RequestMoveTest, ADWithTokensThatWaitForPsDropsThem) {
  Request request = MakeRequest();
  request.Dispatch(0, kPair, kStart);
  request.OnGranted({kD, 1}, Granted(), kStart);
  pb::Committed committed;
  committed.set_lease_id(9);
  request.OnCommitted({kD, 1}, committed, kStart);
  request.OnTokens({kD, 1}, Tokens(0, 1, 3), kStart);
  EXPECT_THAT(Legs(request.OnWorkerLost(kP, "it died", kStart)), ElementsAre(0));
  EXPECT_THAT(Emitted(request.Dispatch(0, kPair, kStart).message.reserve().sequence()), ElementsAre());
}

// Found by core_chaos_test.
TEST(RequestMoveTest, AnEndThatWaitsForPsTokenIsLostWithIt) {
  Request request = MakeRequest();
  request.Dispatch(0, kPair, kStart);
  request.OnGranted({kD, 1}, Granted(), kStart);
  pb::Committed committed;
  committed.set_lease_id(9);
  request.OnCommitted({kD, 1}, committed, kStart);
  request.OnTokens({kD, 1}, Tokens(0, 1, 7), kStart);
  request.OnFinished({kD, 1}, Finished(0, true), kStart);
  const Transition lost = request.OnWorkerLost(kP, "it died", kStart);
  EXPECT_FALSE(lost.end.has_value());
  EXPECT_THAT(Legs(lost), ElementsAre(0));
}

TEST(RequestMoveTest, ChoicesGoOnEachByItself) {
  Request request = MakeRequest(4);
  request.Dispatch(0, kBoth, kStart);
  request.OnGranted({kD, 1}, Granted(), kStart);
  request.OnTokens({kD, 1}, Tokens(0, 0, 2), kStart);
  request.OnTokens({kD, 1}, Tokens(1, 0, 1), kStart);
  request.OnFinished({kD, 1}, Finished(1, false), kStart);  // over
  request.OnTokens({kD, 1}, Tokens(3, 0, 3), kStart);       // choice 2 has nothing yet
  const Transition lost = request.OnWorkerLost(kD, "it died", kStart);
  ASSERT_THAT(Legs(lost), ElementsAre(0, 1, 2));
  const std::map<int, std::vector<int>> left = {{0, {10, 11}}, {2, {}}, {3, {310, 311, 312}}};
  for (int leg = 0; leg < 3; ++leg) {
    EXPECT_EQ(request.demand(leg).choices, 1);
    const pb::Reserve reserve = request.Dispatch(leg, {{uint64_t(80 + leg), "D"}, {}}, kStart).message.reserve();
    EXPECT_EQ(reserve.sequence().sampling().n(), 1);
    EXPECT_EQ(Emitted(reserve.sequence()), left.at(reserve.sequence().choice()));
    EXPECT_EQ(reserve.key().attempt(), 2 + leg);
    request.OnGranted({uint64_t(80 + leg), 2 + leg}, Granted(), kStart);
  }
  EXPECT_TRUE(request.Involves(81));
  EXPECT_THAT(request.LeasesAt(82), ElementsAre(9u));
  // Another loss moves one of them; the others go on.
  EXPECT_THAT(Legs(request.OnWorkerLost(81, "it died, too", kStart)), ElementsAre(1));
  EXPECT_EQ(request.OnTokens({80, 2}, Tokens(0, 2, 1), kStart).tokens.size(), 1u);
  EXPECT_EQ(request.state(), RequestState::kQueued) << "the leg furthest behind";
  // A stop string ends a choice wherever it is.
  EXPECT_TRUE(request.OnStopped(2, kStart).ignored) << "nothing of it came";
  const Transition stopped = request.OnStopped(0, kStart);
  EXPECT_EQ(stopped.to_workers.at(0).incarnation, 80u);
  EXPECT_FALSE(stopped.end.has_value());
}

TEST(RequestMoveTest, AStopStringTakesAWaitingLegOutOfTheQueue) {
  Request request = MakeRequest(2);
  request.Dispatch(0, kBoth, kStart);
  request.OnGranted({kD, 1}, Granted(), kStart);
  for (int choice : {0, 1}) request.OnTokens({kD, 1}, Tokens(choice, 0, 1), kStart);
  request.OnWorkerLost(kD, "it died", kStart);
  const Transition stopped = request.OnStopped(1, kStart);
  EXPECT_THAT(stopped.unqueue, ElementsAre(1));
  const Transition end = request.OnStopped(0, kStart);
  ASSERT_TRUE(end.end.has_value());
  EXPECT_TRUE(end.end->ok());
}

TEST(RequestMoveTest, AnAnswerThatWasCompleteIsNotContinued) {
  for (const bool eos : {false, true}) {
    Request request = MakeRequest(1, 3);
    request.Dispatch(0, kBoth, kStart);
    request.OnGranted({kD, 1}, Granted(), kStart);
    pb::Tokens tokens = Tokens(0, 0, eos ? 2 : 3);
    if (eos) tokens.set_token_ids(1, 2);
    request.OnTokens({kD, 1}, tokens, kStart);
    const Transition lost = request.OnWorkerLost(kD, "its word of the end is lost with it", kStart);
    ASSERT_TRUE(lost.end.has_value());
    EXPECT_TRUE(lost.end->ok());
    EXPECT_TRUE(lost.requeue.empty());
    EXPECT_THAT(request.End(*lost.end, kStart).reasons,
                ElementsAre(eos ? pb::FINISH_REASON_STOP : pb::FINISH_REASON_LENGTH));
  }
}

TEST(RequestMoveTest, LogprobsOfThePromptAreAskedForUntilTheyCame) {
  for (const bool came : {false, true}) {
    Submit submit{.call = 1, .request_id = "r", .sequence = {}, .received = kStart};
    for (int i = 0; i < 2; ++i) submit.sequence.add_tokens(i);
    submit.sequence.set_num_prompt_tokens(2);
    submit.sequence.mutable_sampling()->set_max_tokens(8);
    submit.sequence.mutable_sampling()->set_prompt_logprobs(0);
    Request request(std::move(submit), "r/1");
    request.Dispatch(0, kBoth, kStart);
    request.OnGranted({kD, 1}, Granted(), kStart);
    pb::Tokens tokens = Tokens(0, 0, 1);
    tokens.add_prompt_logprobs();
    if (came) request.OnTokens({kD, 1}, tokens, kStart);
    request.OnWorkerLost(kD, "it died", kStart);
    const pb::SequenceSpec spec = request.Dispatch(0, kBoth, kStart).message.reserve().sequence();
    EXPECT_EQ(spec.sampling().has_prompt_logprobs(), !came);
    request.OnGranted({kD, 2}, Granted(), kStart);
    pb::Tokens next = came ? Tokens(0, 1, 1) : tokens;
    EXPECT_EQ(request.OnTokens({kD, 2}, next, kStart).tokens.size(), 1u);
  }
}

TEST(RequestMoveTest, WhatAnotherWorkerWouldNotMendIsTheEnd) {
  const std::map<pb::ErrorReason, bool> moves = {
      {pb::INVALID_REQUEST, false},  {pb::DEADLINE, false},       {pb::CANCELLED_BY_CLIENT, true},
      {pb::LEASE_EXPIRED, true},     {pb::WORKER_LOST, true},     {pb::TRANSFER_FAILED, true},
      {pb::CHECKSUM_MISMATCH, true}, {pb::DRAINING_WORKER, true}, {pb::INTERNAL_ERROR, true}};
  for (const auto& [reason, moved] : moves) {
    SCOPED_TRACE(pb::ErrorReason_Name(reason));
    Request request = MakeRequest();
    request.Dispatch(0, kBoth, kStart);
    request.OnGranted({kD, 1}, Granted(), kStart);
    const Transition failed = request.OnFailed({kD, 1}, Failed(reason), kStart);
    EXPECT_EQ(failed.requeue.size(), moved ? 1u : 0u);
    EXPECT_EQ(failed.end.has_value(), !moved);
  }
  Request broken = MakeRequest();
  broken.Dispatch(0, kBoth, kStart);
  broken.OnGranted({kD, 1}, Granted(), kStart);
  EXPECT_TRUE(broken.OnTokens({kD, 1}, Tokens(0, 1, 1), kStart).end.has_value()) << "a defect is shown, not mended";
}

// Where D says that the transfer failed, either end may be why.
TEST(RequestMoveTest, AFailedTransferBlamesBothEnds) {
  Request request = MakeRequest();
  request.Dispatch(0, kPair, kStart);
  request.OnGranted({kD, 1}, Granted(), kStart);
  const Transition failed = request.OnFailed({kD, 1}, Failed(pb::TRANSFER_FAILED), kStart);
  EXPECT_THAT(failed.blamed, ::testing::UnorderedElementsAre(kD, kP));
  EXPECT_TRUE(request.Shuns(kP));
}

TEST(RequestMoveTest, MovesWithoutATokenAreFewAndSlower) {
  Request request = MakeRequest(1, 1000, {.in_a_row = 4, .in_all = 1000});
  const auto attempt = [&](int number, bool token) {
    request.Dispatch(0, kBoth, kStart);
    request.OnGranted({kD, number}, Granted(), kStart);
    if (token) request.OnTokens({kD, number}, Tokens(0, number - 1, 1), kStart);
    return request.OnFailed({kD, number}, Failed(pb::INTERNAL_ERROR), kStart);
  };
  int number = 1;
  for (; number < 20; ++number) {
    const Transition moved = attempt(number, true);
    ASSERT_EQ(moved.requeue.size(), 1u) << "it makes progress";
    EXPECT_LE(moved.requeue[0].not_before, kStart);
  }
  std::vector<int64_t> waits;
  for (;; ++number) {
    const Transition moved = attempt(number, false);
    if (moved.end.has_value()) {
      EXPECT_THAT(std::string(moved.end->message()), HasSubstr("boom"));
      break;
    }
    waits.push_back(absl::ToInt64Milliseconds(moved.requeue.at(0).not_before - kStart));
  }
  EXPECT_THAT(waits, ElementsAre(50, 100, 200));
}

TEST(RequestMoveTest, MovesInAllAreBounded) {
  Request request = MakeRequest(1, 1000, {.in_a_row = 4, .in_all = 6});
  for (int number = 1;; ++number) {
    request.Dispatch(0, kBoth, kStart);
    request.OnGranted({kD, number}, Granted(), kStart);
    request.OnTokens({kD, number}, Tokens(0, number - 1, 1), kStart);
    if (!request.OnWorkerLost(kD, "it died", kStart).end.has_value()) continue;
    EXPECT_EQ(number, 7);
    break;
  }
}

// Whatever breaks and however often: every choice's tokens come once, in order, and those that it would have anyway.
TEST(RequestMoveTest, AnyNumberOfLossesAtAnyMoment) {
  const uint64_t base = std::random_device()();
  std::cout << "seed " << base << "\n";
  for (uint64_t seed = base; seed < base + 3000; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937_64 rng(seed);
    const int n = 1 + int(rng() % 3);
    const int max_tokens = 1 + int(rng() % 9);
    Request request = MakeRequest(n, max_tokens, {.in_a_row = 1 << 20, .in_all = 1 << 20});
    struct Running {
      uint64_t worker = 0;
      int attempt = 0;
      int choice = 0, count = 1, next = 0;
    };
    std::map<int, Running> running;  // by leg
    std::vector<int> queued = {0};
    std::map<int, std::vector<int>> got;
    uint64_t next_worker = 100;
    bool ended = false;
    const auto take = [&](const Transition& t) {
      for (const pb::Tokens& tokens : t.tokens) {
        EXPECT_EQ(tokens.first_index(), int(got[tokens.choice()].size()));
        for (int id : tokens.token_ids()) got[tokens.choice()].push_back(id);
      }
      for (const auto& back : t.requeue) {
        running.erase(back.leg);
        queued.push_back(back.leg);
      }
      ended = ended || t.end.has_value();
    };
    for (int step = 0; step < 2000 && !ended; ++step) {
      if (!queued.empty() && rng() % 2 == 0) {
        const int leg = queued.back();
        queued.pop_back();
        const uint64_t worker = next_worker++;
        const pb::Reserve reserve = request.Dispatch(leg, {{worker, "D"}, {}}, kStart).message.reserve();
        const int attempt = reserve.key().attempt();
        running[leg] = {worker, attempt, reserve.sequence().choice(), reserve.sequence().sampling().n(),
                        reserve.sequence().tokens_size() - kPrompt};
        take(request.OnGranted({worker, attempt}, Granted(), kStart));
      } else if (!running.empty()) {
        auto it = std::next(running.begin(), long(rng() % running.size()));
        Running& r = it->second;
        if (rng() % 6 == 0) {
          take(request.OnWorkerLost(r.worker, "it died", kStart));
          continue;
        }
        const int count = std::min(1 + int(rng() % 3), max_tokens - r.next);
        for (int c = r.choice; c < r.choice + r.count; ++c) {
          take(request.OnTokens({r.worker, r.attempt}, Tokens(c, r.next, count), kStart));
          if (rng() % 8 == 0) break;  // the step's other choices are lost on the way
        }
        if (running.contains(it->first) && r.count == 1) r.next += count;
        // With several choices, the worker says all again until each has come: repeats are dropped.
        if (r.count > 1 && rng() % 2 == 0) r.next = 0;
        if (r.next >= max_tokens) take(request.OnFinished({r.worker, r.attempt}, Finished(r.choice, true), kStart));
        if (r.count > 1) take(request.OnWorkerLost(r.worker, "it died", kStart));
      }
      for (auto it = running.begin(); it != running.end();) {
        it = request.Involves(it->second.worker) ? std::next(it) : running.erase(it);
      }
    }
    ASSERT_TRUE(ended);
    for (int c = 0; c < n; ++c) {
      ASSERT_EQ(int(got[c].size()), max_tokens);
      for (int i = 0; i < max_tokens; ++i) ASSERT_EQ(got[c][size_t(i)], 100 * c + 10 + i);
    }
  }
}

}  // namespace
}  // namespace sluice::router
