#include "worker/worker_core.h"

#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/testing/computing_role.h"
#include "worker/testing/messages.h"
#include "worker/testing/scripted_engine.h"

namespace sluice::worker {
namespace {

using testing::HasSubstr;

constexpr uint64_t kIncarnation = 42;
constexpr StreamId kStream = 1;
constexpr int kLeaseMs = 1000;

absl::Time At(int ms) {
  return absl::UnixEpoch() + absl::Milliseconds(ms);
}

CoreOptions Options() {
  return {kIncarnation, /*vocab=*/100};
}

absl::Time Clock() {
  return At(0);
}

class WorkerCoreTest : public testing::Test {
 protected:
  WorkerCoreTest() { Greet(kStream); }

  void Greet(StreamId stream, uint64_t router = 7) {
    core_.OnMessage(stream, Hello(kIncarnation, router), At(0));
    const std::vector<Outgoing> out = core_.TakeOutgoing();
    ASSERT_EQ(out.size(), 1u);
    EXPECT_EQ(out[0].message.hello().worker_incarnation(), kIncarnation);
    EXPECT_EQ(out[0].message.hello().protocol_version(), kProtocolVersion);
  }

  void Post(const v1::RouterMessage& message, int ms = 0, StreamId stream = kStream) {
    core_.OnMessage(stream, message, At(ms));
  }

  // All events since the last call, of all streams, in order.
  std::vector<v1::WorkerEvent> Events() {
    std::vector<v1::WorkerEvent> events;
    for (const Outgoing& out : core_.TakeOutgoing()) {
      for (const v1::WorkerEvent& event : out.message.events()) events.push_back(event);
    }
    return events;
  }

  v1::WorkerEvent OnlyEvent() {
    const std::vector<v1::WorkerEvent> events = Events();
    EXPECT_EQ(events.size(), 1u);
    return events.empty() ? v1::WorkerEvent() : events[0];
  }

  v1::ErrorReason RefusalOf(const v1::RouterMessage& message, int ms = 0) {
    Post(message, ms);
    const v1::WorkerEvent event = OnlyEvent();
    EXPECT_TRUE(event.has_refused()) << event.ShortDebugString();
    refusal_ = event.refused().error().message();
    EXPECT_FALSE(refusal_.empty());
    EXPECT_EQ(event.refused().blocks_free(), free());
    return event.refused().error().reason();
  }

  int free() const { return engine_.stats().blocks_free; }
  int total() const { return engine_.stats().blocks_total; }

  uint64_t Admit(const std::string& id, int prompt, int max_tokens, int64_t remaining_ms = 0) {
    Post(Reserve(id, prompt, max_tokens, remaining_ms));
    const v1::WorkerEvent event = OnlyEvent();
    EXPECT_TRUE(event.has_lease_granted()) << event.ShortDebugString();
    return event.lease_granted().lease_id();
  }

  ScriptedEngine engine_;
  RequestTable requests_{absl::Milliseconds(kLeaseMs)};
  ComputingRole role_{engine_, requests_};
  WorkerCore core_{Options(), engine_, requests_, role_};
  std::string refusal_;
};

TEST_F(WorkerCoreTest, AnswersOneRequestFromLeaseToFinish) {
  Post(Reserve("a", 5, 3));
  v1::WorkerEvent event = OnlyEvent();
  EXPECT_EQ(event.key().request_id(), "a");
  EXPECT_EQ(event.key().attempt(), 1);
  EXPECT_NE(event.lease_granted().lease_id(), 0u);
  EXPECT_EQ(event.lease_granted().lease_ms(), kLeaseMs);
  std::vector<int32_t> tokens;
  while (core_.has_work()) {
    ASSERT_TRUE(core_.Step(Clock).ok());
    for (const v1::WorkerEvent& e : Events()) {
      if (e.has_tokens()) {
        EXPECT_EQ(e.tokens().first_index(), int(tokens.size()));
        EXPECT_EQ(e.tokens().logprobs_size(), 0);
        tokens.insert(tokens.end(), e.tokens().token_ids().begin(), e.tokens().token_ids().end());
      } else {
        EXPECT_EQ(tokens.size(), 3u) << "the end comes after the last token";
        EXPECT_EQ(e.finished().reason(), v1::FINISH_REASON_LENGTH);
        EXPECT_TRUE(e.finished().last());
      }
    }
  }
  const std::vector<int32_t> prompt = {3};
  EXPECT_THAT(tokens, testing::ElementsAre(ScriptedEngine::TokenAt(prompt, 0), ScriptedEngine::TokenAt(prompt, 1),
                                           ScriptedEngine::TokenAt(prompt, 2)));
  EXPECT_EQ(core_.live_requests(), 0u);
  EXPECT_EQ(free(), total());
  EXPECT_EQ(core_.NextTimer(), absl::InfiniteFuture());
}

TEST_F(WorkerCoreTest, OneStepIsOneMessageForAllRequestsOfAStream) {
  for (const char* id : {"a", "b", "c"}) Admit(id, 5, 4);
  ASSERT_TRUE(core_.Step(Clock).ok());
  const std::vector<Outgoing> out = core_.TakeOutgoing();
  ASSERT_EQ(out.size(), 1u);
  EXPECT_EQ(out[0].message.events_size(), 3);
  EXPECT_EQ(out[0].message.report().running(), 3);
  EXPECT_EQ(out[0].message.report().blocks_free(), free());
}

TEST_F(WorkerCoreTest, ReportsLogprobsOnlyWhereAsked) {
  v1::RouterMessage with = Reserve("a", 5, 1);
  with.mutable_reserve()->mutable_sequence()->mutable_sampling()->set_logprobs(2);
  v1::RouterMessage none_but_sampled = Reserve("b", 5, 1);
  none_but_sampled.mutable_reserve()->mutable_sequence()->mutable_sampling()->set_logprobs(0);
  Post(with);
  Post(none_but_sampled);
  Post(Reserve("c", 5, 1));
  ASSERT_TRUE(core_.Step(Clock).ok());
  std::map<std::string, v1::Tokens> tokens;
  for (const v1::WorkerEvent& e : Events()) {
    if (e.has_tokens()) tokens[e.key().request_id()] = e.tokens();
  }
  ASSERT_EQ(tokens["a"].logprobs_size(), 1);
  EXPECT_EQ(tokens["a"].logprobs(0).sampled().token_id(), tokens["a"].token_ids(0));
  EXPECT_EQ(tokens["a"].logprobs(0).sampled().logprob(), -0.5f);
  EXPECT_EQ(tokens["a"].logprobs(0).top_size(), 2);
  ASSERT_EQ(tokens["b"].logprobs_size(), 1);
  EXPECT_EQ(tokens["b"].logprobs(0).top_size(), 0);
  EXPECT_EQ(tokens["c"].logprobs_size(), 0);
}

TEST_F(WorkerCoreTest, ReportsThePromptsLogprobsOnceAndOnlyWhereAsked) {
  for (const auto& [id, alternatives] : std::map<std::string, int>{{"a", 0}, {"b", 1}}) {
    v1::RouterMessage message = Reserve(id, 5, 3);
    message.mutable_reserve()->mutable_sequence()->mutable_sampling()->set_prompt_logprobs(alternatives);
    Post(message);
  }
  Post(Reserve("c", 5, 3));
  std::map<std::string, std::vector<v1::Tokens>> said;
  while (core_.has_work()) {
    ASSERT_TRUE(core_.Step(Clock).ok());
    for (const v1::WorkerEvent& e : Events()) {
      if (e.has_tokens()) said[e.key().request_id()].push_back(e.tokens());
    }
  }
  for (const char* id : {"a", "b"}) {
    const auto& prompt = said[id][0].prompt_logprobs();
    ASSERT_EQ(prompt.size(), 4) << id;
    EXPECT_EQ(prompt[2].sampled().token_id(), 3 + 3);
    EXPECT_EQ(prompt[2].sampled().logprob(), -3.0f);
    EXPECT_EQ(prompt[2].top_size(), id[0] == 'b');
    for (size_t i = 1; i < said[id].size(); ++i) EXPECT_EQ(said[id][i].prompt_logprobs_size(), 0);
  }
  for (const v1::Tokens& tokens : said["c"]) EXPECT_EQ(tokens.prompt_logprobs_size(), 0);
}

TEST_F(WorkerCoreTest, AReplayContinuesTheCount) {
  v1::RouterMessage message = Reserve("a", 8, 5);
  message.mutable_reserve()->mutable_sequence()->set_num_prompt_tokens(6);  // two were emitted before
  Post(message);
  Events();
  ASSERT_TRUE(core_.Step(Clock).ok());
  EXPECT_EQ(OnlyEvent().tokens().first_index(), 2);
}

// ---- refusals ----

TEST_F(WorkerCoreTest, RefusesWhatCannotBe) {
  EXPECT_EQ(RefusalOf(Reserve("", 5, 3)), v1::INVALID_REQUEST);
  EXPECT_EQ(RefusalOf(Reserve("a", 0, 3)), v1::INVALID_REQUEST);
  EXPECT_THAT(refusal_, HasSubstr("tokens"));
  EXPECT_EQ(RefusalOf(Reserve("a", 5, 0)), v1::INVALID_REQUEST);
  EXPECT_THAT(refusal_, HasSubstr("max_tokens"));
  EXPECT_EQ(RefusalOf(Reserve("a", 500, 50)), v1::INVALID_REQUEST);
  EXPECT_EQ(RefusalOf(Reserve("a", 5, 3, /*remaining_ms=*/-1)), v1::DEADLINE);
  v1::RouterMessage prefill = Prefill("a");
  *prefill.mutable_prefill()->mutable_sequence() = Spec(5, 3);
  EXPECT_EQ(RefusalOf(prefill), v1::INCOMPATIBLE) << "the role's word";
  EXPECT_EQ(free(), total());
  EXPECT_EQ(core_.live_requests(), 0u);
  EXPECT_EQ(core_.NextTimer(), absl::InfiniteFuture()) << "a refused request left a lease behind";
}

TEST(WorkerCoreSmallPool, TellsNeverFromNotNow) {
  ScriptedEngine engine({.num_blocks = 4});
  RequestTable requests(absl::Milliseconds(kLeaseMs));
  ComputingRole role(engine, requests);
  WorkerCore core(Options(), engine, requests, role);
  core.OnMessage(1, Hello(kIncarnation), At(0));
  core.OnMessage(1, Reserve("large", 60, 5), At(0));
  core.OnMessage(1, Reserve("a", 30, 2), At(0));
  core.OnMessage(1, Reserve("b", 30, 10), At(0));
  const std::vector<Outgoing> out = core.TakeOutgoing();
  ASSERT_EQ(out[0].message.events_size(), 3);
  EXPECT_EQ(out[0].message.events(0).refused().error().reason(), v1::NEVER_FITS);
  EXPECT_TRUE(out[0].message.events(1).has_lease_granted());
  EXPECT_EQ(out[0].message.events(2).refused().error().reason(), v1::NO_BLOCKS);
  EXPECT_EQ(out[0].message.events(2).refused().error().code(), int(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(out[0].message.events(2).refused().blocks_free(), 2);
}

TEST_F(WorkerCoreTest, RefusesALiveKeyAgainButNotADeadOne) {
  Admit("a", 5, 3);
  EXPECT_EQ(RefusalOf(Reserve("a", 5, 3)), v1::INVALID_REQUEST);
  EXPECT_EQ(core_.live_requests(), 1u);
  v1::RouterMessage next_attempt = Reserve("a", 5, 3);
  next_attempt.mutable_reserve()->mutable_key()->set_attempt(2);
  Post(next_attempt);
  EXPECT_TRUE(OnlyEvent().has_lease_granted());
  Post(Cancel("a"));
  EXPECT_TRUE(OnlyEvent().has_failed());
  Admit("a", 5, 3);
}

TEST_F(WorkerCoreTest, RoutersTakeTurnsWhereBlocksAreShort) {
  Greet(2, 8);
  core_.TakeOutgoing();
  for (const char* id : {"a", "b"}) Admit(id, 500, 12);  // 32 of the 64 blocks each
  Post(Reserve("c", 5, 10), 1, 2);
  EXPECT_EQ(OnlyEvent().refused().error().reason(), v1::NO_BLOCKS);
  Post(Cancel("a"), 2);
  // Both hear that there is room, also the one without a request here.
  std::vector<Outgoing> out = core_.TakeOutgoing();
  ASSERT_EQ(out.size(), 2u);
  for (const Outgoing& o : out) EXPECT_EQ(o.message.report().blocks_free(), 32);
  // The quicker one was not first in the line.
  EXPECT_EQ(RefusalOf(Reserve("d", 5, 10), 3), v1::NO_BLOCKS);
  EXPECT_THAT(refusal_, HasSubstr("another router"));
  Post(Reserve("c", 5, 10), 4, 2);
  out = core_.TakeOutgoing();
  ASSERT_EQ(out.size(), 2u) << "and it is told as soon as its own turn comes";
  EXPECT_EQ(out[0].stream, kStream);
  EXPECT_TRUE(out[1].message.events(0).has_lease_granted());
  Post(Reserve("d", 5, 10), 5);
  EXPECT_TRUE(OnlyEvent().has_lease_granted());
}

TEST_F(WorkerCoreTest, ATurnThatNobodyUsesPasses) {
  Greet(2, 8);
  for (const char* id : {"a", "b"}) Admit(id, 500, 12);
  Post(Reserve("c", 5, 10), 1, 2);
  Post(Cancel("a"), 2);
  core_.TakeOutgoing();
  EXPECT_EQ(RefusalOf(Reserve("d", 5, 10), 3), v1::NO_BLOCKS);
  EXPECT_EQ(core_.NextTimer(), At(2) + kTurn);
  core_.Tick(At(2) + kTurn);
  const std::vector<Outgoing> out = core_.TakeOutgoing();
  ASSERT_EQ(out.size(), 1u);
  EXPECT_EQ(out[0].stream, kStream);
  Admit("d", 5, 10);
}

TEST_F(WorkerCoreTest, DrainRefusesTheNewAndFinishesTheRunning) {
  Admit("a", 5, 3);
  Post(Drain());
  EXPECT_EQ(RefusalOf(Reserve("b", 5, 3)), v1::DRAINING_WORKER);
  bool finished = false;
  while (core_.has_work()) {
    ASSERT_TRUE(core_.Step(Clock).ok());
    for (const v1::WorkerEvent& e : Events()) finished = finished || e.has_finished();
  }
  EXPECT_TRUE(finished);
  EXPECT_TRUE(core_.Report().draining());
}

// ---- ends ----

// Each way to end a request, from each state it can be in.
struct End {
  std::string name;
  std::function<void(WorkerCore&, uint64_t lease)> act;
  v1::ErrorReason reason;  // UNSPECIFIED: it ends without a word
};

const End kEnds[] = {
    {"Cancel", [](WorkerCore& core, uint64_t) { core.OnMessage(kStream, Cancel("a"), At(10)); },
     v1::CANCELLED_BY_CLIENT},
    {"LeaseExpiry", [](WorkerCore& core, uint64_t) { core.Tick(At(kLeaseMs)); }, v1::LEASE_EXPIRED},
    {"Deadline", [](WorkerCore& core, uint64_t) { core.Tick(At(500)); }, v1::DEADLINE},
    {"Release", [](WorkerCore& core, uint64_t lease) { core.OnMessage(kStream, Release("a", lease), At(10)); },
     v1::ERROR_REASON_UNSPECIFIED},
    {"StreamEnd", [](WorkerCore& core, uint64_t) { core.OnStreamEnd(kStream); }, v1::ERROR_REASON_UNSPECIFIED},
    {"SecondHello", [](WorkerCore& core, uint64_t) { core.OnMessage(kStream, Hello(kIncarnation), At(10)); },
     v1::ERROR_REASON_UNSPECIFIED},
    {"NewerStreamOfTheRouter", [](WorkerCore& core, uint64_t) { core.OnMessage(9, Hello(kIncarnation), At(10)); },
     v1::ERROR_REASON_UNSPECIFIED},
};

class EveryEnd : public WorkerCoreTest, public testing::WithParamInterface<std::tuple<int, int>> {};

TEST_P(EveryEnd, FreesTheBlocksAtOnceAndSaysSoOnce) {
  const End& end = kEnds[std::get<0>(GetParam())];
  const int steps = std::get<1>(GetParam());  // 0: admitted, 1: in the prompt, 3: first token, 5: decoding
  const int64_t remaining_ms = end.reason == v1::DEADLINE ? 500 : 0;
  // Of another router, and its lease outlives the test's.
  Greet(2, /*router=*/8);
  Post(Reserve("bystander", 40, 20), 600, 2);
  Events();
  const int baseline = free();

  const uint64_t lease = Admit("a", 70, 20, remaining_ms);
  ASSERT_LT(free(), baseline);
  for (int i = 0; i < steps; ++i) ASSERT_TRUE(core_.Step(Clock).ok());
  Events();
  end.act(core_, lease);
  EXPECT_EQ(free(), baseline);
  EXPECT_EQ(core_.live_requests(), 1u);
  int ends = 0;
  for (const v1::WorkerEvent& e : Events()) {
    ASSERT_TRUE(e.has_failed()) << e.ShortDebugString();
    EXPECT_EQ(e.failed().error().reason(), end.reason);
    if (e.key().request_id() == "a") ++ends;
  }
  EXPECT_EQ(ends, end.reason == v1::ERROR_REASON_UNSPECIFIED ? 0 : 1);
  // Nothing more comes of it, and the bystander goes on to its end.
  bool finished = false;
  while (core_.has_work()) {
    ASSERT_TRUE(core_.Step(Clock).ok());
    for (const v1::WorkerEvent& e : Events()) {
      EXPECT_EQ(e.key().request_id(), "bystander");
      finished = finished || e.has_finished();
    }
  }
  EXPECT_TRUE(finished);
  EXPECT_EQ(free(), total());
}

INSTANTIATE_TEST_SUITE_P(AllStates, EveryEnd,
                         testing::Combine(testing::Range(0, int(std::size(kEnds))), testing::Values(0, 1, 3, 5)),
                         [](const auto& param) {
                           return kEnds[std::get<0>(param.param)].name + "After" +
                                  std::to_string(std::get<1>(param.param)) + "Steps";
                         });

TEST_F(WorkerCoreTest, FailAllEndsEveryRequestAndRefusesNewOnes) {
  Greet(2, /*router=*/8);
  Admit("a", 5, 9);
  Post(Reserve("b", 70, 9), 0, 2);
  Events();
  v1::ErrorInfo error;
  error.set_reason(v1::DRAINING_WORKER);
  core_.FailAll(error);
  const std::vector<v1::WorkerEvent> events = Events();
  EXPECT_EQ(events.size(), 2u);
  for (const v1::WorkerEvent& e : events) EXPECT_EQ(e.failed().error().reason(), v1::DRAINING_WORKER);
  EXPECT_EQ(free(), total());
  EXPECT_EQ(RefusalOf(Reserve("c", 5, 3)), v1::DRAINING_WORKER);
}

// Somebody else still uses the blocks when the request ends.
TEST_F(WorkerCoreTest, AnEndThatWaitsForTheBlocksIsSaidWhenTheyAreFree) {
  const uint64_t lease = Admit("a", 5, 9, /*remaining_ms=*/500);
  role_.hold = true;
  Post(Cancel("a"));
  Post(Cancel("a"));
  Post(Release("a", lease));
  core_.Tick(At(9000));
  EXPECT_TRUE(Events().empty());
  EXPECT_EQ(core_.NextTimer(), absl::InfiniteFuture());
  EXPECT_EQ(RefusalOf(Reserve("a", 5, 9)), v1::INVALID_REQUEST) << "its key is still spoken for";
  role_.LetGo(lease);
  EXPECT_EQ(OnlyEvent().failed().error().reason(), v1::CANCELLED_BY_CLIENT);
  EXPECT_EQ(core_.live_requests(), 0u);
}

TEST_F(WorkerCoreTest, AReleasedKeyIsFreeAtOnceAndTheOldRequestStaysSilent) {
  const uint64_t lease = Admit("a", 5, 9);
  role_.hold = true;
  Post(Release("a", lease));
  Admit("a", 5, 9);
  role_.LetGo(lease);
  EXPECT_TRUE(Events().empty());
  EXPECT_EQ(core_.live_requests(), 1u);
  role_.hold = false;
  Post(Cancel("a"));
  EXPECT_TRUE(OnlyEvent().has_failed());
  EXPECT_EQ(free(), total());
}

TEST_F(WorkerCoreTest, NothingIsSaidToAStreamThatEndedMeanwhile) {
  const uint64_t cancelled = Admit("a", 5, 9), running = Admit("b", 5, 9);
  role_.hold = true;
  Post(Cancel("a"));
  core_.OnStreamEnd(kStream);
  role_.LetGo(cancelled);
  role_.LetGo(running);
  EXPECT_TRUE(core_.TakeOutgoing().empty());
  EXPECT_EQ(core_.live_requests(), 0u);
}

TEST_F(WorkerCoreTest, FailAllWaitsForNobody) {
  Admit("a", 5, 9);
  Admit("b", 5, 9);
  role_.hold = true;
  Post(Cancel("a"));
  v1::ErrorInfo error;
  error.set_reason(v1::DRAINING_WORKER);
  core_.FailAll(error);
  std::map<std::string, v1::ErrorReason> ends;
  for (const v1::WorkerEvent& e : Events()) ends[e.key().request_id()] = e.failed().error().reason();
  EXPECT_EQ(ends, (std::map<std::string, v1::ErrorReason>{{"a", v1::CANCELLED_BY_CLIENT}, {"b", v1::DRAINING_WORKER}}));
  for (const uint64_t id : requests_.All()) role_.LetGo(id);
  EXPECT_TRUE(Events().empty());
  EXPECT_EQ(core_.live_requests(), 0u);
}

TEST_F(WorkerCoreTest, IgnoresCancelAndReleaseOfTheUnknown) {
  const uint64_t lease = Admit("a", 5, 3);
  Post(Cancel("never seen"));
  Post(Release("never seen", lease));
  Post(Release("a", lease + 1));
  Post(Cancel("a"), 0, /*stream=*/1);
  Post(Cancel("a"));
  EXPECT_EQ(Events().size(), 1u) << "one end, and no word about the rest";
}

TEST_F(WorkerCoreTest, StreamsDoNotMeet) {
  Greet(2, /*router=*/8);
  const uint64_t lease = Admit("a", 5, 9);
  Post(Reserve("a", 5, 9), 0, 2);
  EXPECT_TRUE(OnlyEvent().has_lease_granted()) << "the same key on another stream is another request";
  Post(Renew({lease}), 900, 2);
  Post(Cancel("a"), 0, 2);
  EXPECT_TRUE(OnlyEvent().has_failed());
  EXPECT_EQ(core_.live_requests(), 1u);
  core_.Tick(At(kLeaseMs));
  EXPECT_EQ(OnlyEvent().failed().error().reason(), v1::LEASE_EXPIRED) << "a lease was renewed from another stream";
}

TEST_F(WorkerCoreTest, RenewingKeepsARequestThroughManyTerms) {
  const uint64_t lease = Admit("a", 5, 400);
  for (int ms = 900; ms < 9000; ms += 900) {
    Post(Renew({999999, lease}), ms);
    core_.Tick(At(ms + 50));
    EXPECT_EQ(core_.live_requests(), 1u);
  }
  EXPECT_EQ(core_.NextTimer(), At(8100 + kLeaseMs));
  core_.Tick(At(8100 + kLeaseMs));
  EXPECT_EQ(core_.live_requests(), 0u);
}

TEST_F(WorkerCoreTest, ARenewalThatWaitedBehindALongStepCounts) {
  const uint64_t lease = Admit("a", 5, 9);
  // The step took three terms; the renewal came in time and is handled before the clock is looked at.
  Post(Renew({lease}), 900);
  core_.Tick(At(1500));
  EXPECT_EQ(core_.live_requests(), 1u);
}

TEST_F(WorkerCoreTest, TimersNeedNoNewWork) {
  Admit("a", 5, 9, /*remaining_ms=*/300);
  EXPECT_EQ(core_.NextTimer(), At(300));
  core_.Tick(At(299));
  EXPECT_EQ(core_.live_requests(), 1u);
  core_.Tick(core_.NextTimer());
  EXPECT_EQ(core_.live_requests(), 0u);
  EXPECT_EQ(core_.NextTimer(), absl::InfiniteFuture());
}

// ---- streams ----

class WorkerCoreStreamTest : public testing::Test {
 protected:
  absl::Status CloseOf(StreamId stream) {
    for (const Outgoing& out : core_.TakeOutgoing()) {
      if (out.stream == stream && out.close) return *out.close;
    }
    return absl::OkStatus();
  }
  ScriptedEngine engine_;
  RequestTable requests_{absl::Milliseconds(kLeaseMs)};
  ComputingRole role_{engine_, requests_};
  WorkerCore core_{Options(), engine_, requests_, role_};
};

TEST_F(WorkerCoreStreamTest, RefusesAStaleHello) {
  core_.OnMessage(1, Hello(kIncarnation - 1), At(0));
  const absl::Status status = CloseOf(1);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("STALE_INCARNATION"));
  // What was sent behind the hello means nothing.
  core_.OnMessage(1, Reserve("a", 5, 3), At(0));
  EXPECT_TRUE(core_.TakeOutgoing().empty());
  EXPECT_EQ(core_.live_requests(), 0u);
}

TEST_F(WorkerCoreStreamTest, RefusesAStreamWithoutHello) {
  core_.OnMessage(1, Reserve("a", 5, 3), At(0));
  EXPECT_EQ(CloseOf(1).code(), absl::StatusCode::kFailedPrecondition);
  core_.OnMessage(2, v1::RouterMessage(), At(0));
  EXPECT_EQ(CloseOf(2).code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(WorkerCoreStreamTest, ANewerStreamOfARouterClosesTheOlder) {
  core_.OnMessage(1, Hello(kIncarnation, 7), At(0));
  core_.OnMessage(2, Hello(kIncarnation, 8), At(0));
  core_.TakeOutgoing();
  core_.OnMessage(3, Hello(kIncarnation, 7), At(0));
  std::set<StreamId> closed;
  for (const Outgoing& out : core_.TakeOutgoing()) {
    if (out.close) closed.insert(out.stream);
  }
  EXPECT_EQ(closed, std::set<StreamId>{1});
}

TEST_F(WorkerCoreStreamTest, IgnoresAnEmptyMessageOfAnOpenStream) {
  core_.OnMessage(1, Hello(kIncarnation), At(0));
  core_.TakeOutgoing();
  core_.OnMessage(1, v1::RouterMessage(), At(0));
  EXPECT_TRUE(core_.TakeOutgoing().empty());
}

TEST_F(WorkerCoreStreamTest, AnEnginesErrorIsReturned) {
  core_.OnMessage(1, Hello(kIncarnation), At(0));
  core_.OnMessage(1, Reserve("a", 5, 3), At(0));
  engine_.fail_next_step = true;
  EXPECT_EQ(core_.Step(Clock).code(), absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace sluice::worker
