#include "decode_worker/decode_role.h"

#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvtransfer/error_info.h"
#include "worker/error_info.h"
#include "worker/testing/messages.h"
#include "worker/testing/scripted_engine.h"
#include "worker/worker_core.h"

namespace sluice::decode_worker {
namespace {

using kvtransfer::Receiver;
using testing::HasSubstr;
using worker::Cancel;
using worker::Hello;
using worker::Release;
using worker::Renew;
using worker::ScriptedEngine;

constexpr uint64_t kIncarnation = 42;
constexpr uint64_t kPrefill = 77;
constexpr worker::StreamId kStream = 1;
constexpr int kLeaseMs = 1000;
constexpr kernels::KvLayout kLayout{.num_layers = 2, .num_kv_heads = 2, .head_dim = 4, .block_size = 16};

absl::Time At(int ms) {
  return absl::UnixEpoch() + absl::Milliseconds(ms);
}

absl::Time Clock() {
  return At(0);
}

// Remembers what was asked of it; the test plays the transfer.
struct ScriptedInbox final : KvInbox {
  void Expect(uint64_t lease, uint64_t prefill, v1::RequestKey, std::vector<int32_t> blocks, int first) override {
    EXPECT_TRUE(open.insert(lease).second) << "lease " << lease << " expected twice";
    EXPECT_EQ(prefill, kPrefill);
    expected[lease] = std::move(blocks);
    first_block[lease] = first;
  }
  void Forget(uint64_t lease, absl::Status why) override {
    EXPECT_TRUE(open.contains(lease)) << "nothing to forget of lease " << lease;
    EXPECT_TRUE(forgotten.emplace(lease, why).second) << "forgotten twice";
  }

  std::set<uint64_t> open;
  std::map<uint64_t, std::vector<int32_t>> expected;
  std::map<uint64_t, int> first_block;
  std::map<uint64_t, absl::Status> forgotten;
};

v1::RouterMessage HandedOver(const std::string& id, int prompt, int max_tokens, int64_t remaining_ms = 0) {
  v1::RouterMessage message = worker::Reserve(id, prompt, max_tokens, remaining_ms);
  message.mutable_reserve()->set_compute_prompt(false);
  message.mutable_reserve()->set_prefill_incarnation(kPrefill);
  return message;
}

class DecodeRoleTest : public testing::Test {
 protected:
  DecodeRoleTest() { Greet(kStream); }

  void Greet(worker::StreamId stream, uint64_t router = 7) {
    core_.OnMessage(stream, Hello(kIncarnation, router), At(0));
    core_.TakeOutgoing();
  }
  void Post(const v1::RouterMessage& message, int ms = 0, worker::StreamId stream = kStream) {
    core_.OnMessage(stream, message, At(ms));
  }
  std::vector<v1::WorkerEvent> Events() {
    std::vector<v1::WorkerEvent> events;
    for (const worker::Outgoing& out : core_.TakeOutgoing()) {
      for (const v1::WorkerEvent& event : out.message.events()) events.push_back(event);
    }
    return events;
  }
  v1::WorkerEvent OnlyEvent() {
    const std::vector<v1::WorkerEvent> events = Events();
    EXPECT_EQ(events.size(), 1u);
    return events.empty() ? v1::WorkerEvent() : events[0];
  }
  uint64_t Admit(const v1::RouterMessage& message) {
    Post(message);
    const v1::WorkerEvent event = OnlyEvent();
    EXPECT_TRUE(event.has_lease_granted()) << event.ShortDebugString();
    return event.lease_granted().lease_id();
  }
  void EndKv(uint64_t lease, Receiver::End end, int ms = 20) {
    ASSERT_EQ(inbox_.open.erase(lease), 1u) << "a transfer ends once";
    end.lease_id = lease;
    role_.OnKvEnd(end, At(ms));
  }
  void FailKv(uint64_t lease, absl::Status why) {
    Receiver::End end;
    end.status = std::move(why);
    EndKv(lease, end);
  }
  static Receiver::End Arrived(int prompt, int32_t first_token = 5) {
    Receiver::End end;
    end.commit.set_computed_tokens(prompt);
    end.commit.add_first_tokens()->set_token_id(first_token);
    end.bytes = int64_t(kLayout.block_bytes_all_layers()) * kernels::BlocksFor(prompt, kLayout.block_size);
    end.exposed = absl::Microseconds(2500);
    return end;
  }
  int free() const { return engine_.stats().blocks_free; }
  int total() const { return engine_.stats().blocks_total; }

  ScriptedEngine engine_;
  ScriptedInbox inbox_;
  worker::RequestTable requests_{absl::Milliseconds(kLeaseMs)};
  DecodeRole role_{kLayout, engine_, requests_, inbox_};
  worker::WorkerCore core_{{kIncarnation, /*vocab=*/100}, engine_, requests_, role_};
};

TEST_F(DecodeRoleTest, WhatItsCacheHoldsIsNotDueAndNotTheTransfersToWrite) {
  engine_.cached_tokens = 32;
  Post(HandedOver("a", 75, 9));
  const v1::WorkerEvent event = OnlyEvent();
  ASSERT_TRUE(event.has_lease_granted());
  EXPECT_EQ(event.lease_granted().prefix_tokens(), 32);
  const uint64_t lease = event.lease_granted().lease_id();
  EXPECT_EQ(inbox_.expected[lease].size(), 5u);
  EXPECT_EQ(inbox_.first_block[lease], 2);
  Receiver::End end = Arrived(75);
  end.bytes -= 2 * int64_t(kLayout.block_bytes_all_layers());
  end.commit.set_cached_tokens(16);
  EndKv(lease, end);
  EXPECT_TRUE(Events()[0].has_committed());
  v1::Finished finished;
  while (core_.has_work()) {
    ASSERT_TRUE(core_.Step(Clock).ok());
    for (const v1::WorkerEvent& e : Events()) {
      if (e.has_finished()) finished = e.finished();
    }
  }
  EXPECT_EQ(finished.cached_tokens(), 16) << "what the prefill worker did not compute";
  EXPECT_EQ(free(), total());
  // The whole prompt is too much, and fails the request.
  const uint64_t other = Admit(HandedOver("b", 75, 9));
  EndKv(other, Arrived(75));
  EXPECT_TRUE(OnlyEvent().has_failed());
}

TEST_F(DecodeRoleTest, GoesOnFromTheSecondToken) {
  Post(HandedOver("a", 40, 4));
  const v1::WorkerEvent granted = OnlyEvent();
  const uint64_t lease = granted.lease_granted().lease_id();
  EXPECT_EQ(granted.lease_granted().lease_ms(), kLeaseMs);
  EXPECT_EQ(granted.lease_granted().prefix_tokens(), 0);
  ASSERT_EQ(granted.lease_granted().blocks_size(), 1);
  EXPECT_EQ(granted.lease_granted().blocks(0).num_blocks(), 3);
  EXPECT_EQ(inbox_.expected[lease].size(), 3u);
  EXPECT_FALSE(core_.has_work()) << "nothing is decoded before the KV is here";

  EndKv(lease, Arrived(40), /*ms=*/25);
  std::vector<v1::WorkerEvent> events = Events();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].committed().lease_id(), lease);
  EXPECT_EQ(events[0].committed().bytes(), int64_t(3 * kLayout.block_bytes_all_layers()));
  EXPECT_EQ(events[0].committed().exposed_transfer_ms(), 2.5);
  EXPECT_EQ(events[1].progress().events(0).name(), "committed");
  EXPECT_EQ(events[1].progress().events(0).at_ms(), 25.0);

  std::vector<int32_t> tokens;
  int decoding = 0;
  bool finished = false;
  while (core_.has_work()) {
    ASSERT_TRUE(core_.Step(Clock).ok());
    for (const v1::WorkerEvent& e : Events()) {
      decoding += e.has_progress();
      finished = finished || (e.has_finished() && e.finished().last());
      if (!e.has_tokens()) continue;
      EXPECT_EQ(e.tokens().first_index(), 1 + int(tokens.size()));
      tokens.insert(tokens.end(), e.tokens().token_ids().begin(), e.tokens().token_ids().end());
    }
  }
  EXPECT_EQ(tokens.size(), 3u);
  EXPECT_EQ(decoding, 1);
  EXPECT_TRUE(finished);
  EXPECT_EQ(free(), total());
  EXPECT_EQ(core_.live_requests(), 0u);
}

// The blocks that the prefill worker may write are those of the prompt, not those of the answer.
TEST_F(DecodeRoleTest, ExpectsThePromptsBlocksOnly) {
  for (const auto& [prompt, blocks] : std::map<int, size_t>{{1, 1}, {15, 1}, {16, 1}, {17, 2}, {48, 3}, {49, 4}}) {
    const uint64_t lease = Admit(HandedOver("a", prompt, 100));
    EXPECT_EQ(inbox_.expected[lease].size(), blocks);
    EXPECT_EQ(engine_.BlocksOf(lease).size(), size_t((prompt + 100 + 15) / 16));
    Post(Release("a", lease));
    FailKv(lease, absl::CancelledError());
  }
  EXPECT_EQ(free(), total());
}

TEST_F(DecodeRoleTest, ComputesThePromptWhereAsked) {
  Admit(worker::Reserve("a", 40, 2));
  EXPECT_TRUE(inbox_.open.empty());
  std::vector<int> indices;
  while (core_.has_work()) {
    ASSERT_TRUE(core_.Step(Clock).ok());
    for (const v1::WorkerEvent& e : Events()) {
      EXPECT_FALSE(e.has_progress());
      if (e.has_tokens()) indices.push_back(e.tokens().first_index());
    }
  }
  EXPECT_THAT(indices, testing::ElementsAre(0, 1));
  EXPECT_EQ(free(), total());
}

TEST_F(DecodeRoleTest, PromisesBlocksAsFarAsItIsAsked) {
  v1::RouterMessage handed_over = HandedOver("a", 40, 90), whole = worker::Reserve("b", 40, 90);
  for (v1::RouterMessage* message : {&handed_over, &whole}) {
    message->mutable_reserve()->set_headroom_tokens(7);
    EXPECT_EQ(engine_.RequestOf(Admit(*message)).headroom_tokens, 7);
  }
}

// Or its own prefix hits would be given up for nothing.
TEST_F(DecodeRoleTest, ThePromptsLogprobsComeFromWhoComputesThePrompt) {
  v1::RouterMessage handed_over = HandedOver("a", 40, 9), whole = worker::Reserve("b", 40, 9);
  for (v1::RouterMessage* message : {&handed_over, &whole}) {
    message->mutable_reserve()->mutable_sequence()->mutable_sampling()->set_prompt_logprobs(3);
  }
  EXPECT_EQ(engine_.RequestOf(Admit(handed_over)).prompt_logprobs, -1);
  EXPECT_EQ(engine_.RequestOf(Admit(whole)).prompt_logprobs, 3);
}

TEST_F(DecodeRoleTest, RefusesWhatCannotBe) {
  const auto refusal = [&](const v1::RouterMessage& message) {
    Post(message);
    const v1::WorkerEvent event = OnlyEvent();
    EXPECT_TRUE(event.has_refused()) << event.ShortDebugString();
    EXPECT_EQ(free(), total());
    EXPECT_EQ(core_.live_requests(), 0u);
    return event.refused().error().reason();
  };
  v1::RouterMessage nobody = HandedOver("a", 5, 3);
  nobody.mutable_reserve()->clear_prefill_incarnation();
  EXPECT_EQ(refusal(nobody), v1::INVALID_REQUEST);
  EXPECT_EQ(refusal(HandedOver("a", 500, 50)), v1::INVALID_REQUEST);
  v1::RouterMessage prefill = worker::Prefill("a");
  *prefill.mutable_prefill()->mutable_sequence() = worker::Spec(5, 3);
  EXPECT_EQ(refusal(prefill), v1::INCOMPATIBLE);
  EXPECT_TRUE(inbox_.open.empty());
}

// A Commit that is not what was due never leads to a token.
TEST_F(DecodeRoleTest, AWrongCommitFailsTheRequest) {
  const std::pair<const char*, std::function<void(Receiver::End&)>> spoils[] = {
      {"a block less", [](auto& e) { e.bytes -= int64_t(kLayout.block_bytes()); }},
      {"a block more", [](auto& e) { e.bytes += int64_t(kLayout.block_bytes()); }},
      {"not the whole prompt", [](auto& e) { e.commit.set_computed_tokens(39); }},
      {"no first token", [](auto& e) { e.commit.clear_first_tokens(); }},
      {"two first tokens", [](auto& e) { e.commit.add_first_tokens(); }},
      {"an answer that is over", [](auto& e) { e.commit.mutable_first_tokens(0)->set_finished(true); }},
      {"no token of the vocabulary", [](auto& e) { e.commit.mutable_first_tokens(0)->set_token_id(100); }},
  };
  for (const auto& [name, spoil] : spoils) {
    SCOPED_TRACE(name);
    const uint64_t lease = Admit(HandedOver("a", 40, 4));
    Receiver::End end = Arrived(40);
    spoil(end);
    EndKv(lease, end);
    EXPECT_EQ(OnlyEvent().failed().error().reason(), v1::TRANSFER_FAILED);
    EXPECT_FALSE(core_.has_work());
    EXPECT_EQ(free(), total());
  }
}

TEST_F(DecodeRoleTest, ATransfersFailureHasItsReason) {
  const std::pair<absl::Status, v1::ErrorReason> cases[] = {
      {absl::DataLossError("wrong checksum"), v1::CHECKSUM_MISMATCH},
      {absl::UnavailableError("no link to the prefill worker"), v1::TRANSFER_FAILED},
      {absl::DeadlineExceededError("no progress"), v1::TRANSFER_FAILED},
      {kvtransfer::PeerLost("the prefill worker is silent"), v1::WORKER_LOST},
      {kvtransfer::FromErrorInfo(worker::MakeError(v1::DEADLINE, "the sender's word")), v1::DEADLINE},
  };
  for (const auto& [status, reason] : cases) {
    const uint64_t lease = Admit(HandedOver("a", 40, 4));
    FailKv(lease, status);
    const v1::WorkerEvent event = OnlyEvent();
    EXPECT_EQ(event.failed().error().reason(), reason);
    EXPECT_EQ(event.failed().error().code(), int(worker::CodeOf(reason)));
    EXPECT_EQ(event.failed().error().message(), std::string(status.message()));
    EXPECT_EQ(free(), total());
    EXPECT_EQ(core_.NextTimer(), absl::InfiniteFuture());
  }
}

// ---- every way to end, in every state ----

struct Way {
  std::string name;
  std::function<void(worker::WorkerCore&, uint64_t lease)> act;
  v1::ErrorReason reason;  // UNSPECIFIED: it ends without a word
};

const Way kWays[] = {
    {"Cancel", [](auto& core, uint64_t) { core.OnMessage(kStream, Cancel("a"), At(10)); }, v1::CANCELLED_BY_CLIENT},
    {"LeaseExpiry", [](auto& core, uint64_t) { core.Tick(At(kLeaseMs)); }, v1::LEASE_EXPIRED},
    {"Deadline", [](auto& core, uint64_t) { core.Tick(At(500)); }, v1::DEADLINE},
    {"Release", [](auto& core, uint64_t lease) { core.OnMessage(kStream, Release("a", lease), At(10)); },
     v1::ERROR_REASON_UNSPECIFIED},
    {"StreamEnd", [](auto& core, uint64_t) { core.OnStreamEnd(kStream); }, v1::ERROR_REASON_UNSPECIFIED},
};
enum StateOfTest { kAwaiting, kJustCommitted, kDecoding, kComputingPrompt };
const char* const kSayNames[] = {"Cancelled", "Lost", "Landed"};
const char* const kStateNames[] = {"Awaiting", "JustCommitted", "Decoding", "ComputingPrompt"};
// What the transfer says when it hears that the lease is over; OK: everything had landed just before.
enum KvSays { kCancelled, kLost, kLanded };

class EveryEnd : public DecodeRoleTest, public testing::WithParamInterface<std::tuple<int, int, int>> {};

TEST_P(EveryEnd, FreesTheBlocksAndSaysSoOnce) {
  const Way& way = kWays[std::get<0>(GetParam())];
  const auto state = StateOfTest(std::get<1>(GetParam()));
  const auto kv_says = KvSays(std::get<2>(GetParam()));
  Greet(2, /*router=*/8);
  Post(worker::Reserve("bystander", 40, 20), 600, 2);
  Events();
  const int baseline = free();

  const int64_t remaining_ms = way.reason == v1::DEADLINE ? 500 : 0;
  const uint64_t lease = Admit(state == kComputingPrompt ? worker::Reserve("a", 70, 20, remaining_ms)
                                                         : HandedOver("a", 70, 20, remaining_ms));
  if (state == kJustCommitted || state == kDecoding) EndKv(lease, Arrived(70));
  if (state == kDecoding || state == kComputingPrompt) {
    ASSERT_TRUE(core_.Step(Clock).ok());
  }
  Events();
  way.act(core_, lease);
  if (state == kAwaiting) {
    EXPECT_TRUE(inbox_.forgotten.contains(lease));
    EXPECT_LT(free(), baseline) << "the transfer may still write";
    EXPECT_TRUE(Events().empty()) << "it says that the blocks are free when they are";
    way.act(core_, lease);
    core_.Tick(At(kLeaseMs));
    kv_says == kLanded ? EndKv(lease, Arrived(70))
                       : FailKv(lease, kv_says == kLost ? absl::UnavailableError("gone") : absl::CancelledError());
  } else {
    EXPECT_TRUE(inbox_.forgotten.empty());
  }
  EXPECT_EQ(free(), baseline);
  std::vector<v1::ErrorReason> ends;
  for (const v1::WorkerEvent& e : Events()) {
    if (e.key().request_id() == "a") ends.push_back(e.failed().error().reason());
  }
  if (way.reason == v1::ERROR_REASON_UNSPECIFIED) {
    EXPECT_TRUE(ends.empty());
  } else {
    EXPECT_THAT(ends, testing::ElementsAre(way.reason));
  }
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
  EXPECT_EQ(core_.live_requests(), 0u);
  EXPECT_EQ(core_.NextTimer(), absl::InfiniteFuture());
}

INSTANTIATE_TEST_SUITE_P(AllStates, EveryEnd,
                         testing::Combine(testing::Range(0, int(std::size(kWays))), testing::Range(0, 4),
                                          testing::Range(0, 3)),
                         [](const auto& param) {
                           return kWays[std::get<0>(param.param)].name + "While" +
                                  kStateNames[std::get<1>(param.param)] + "Kv" + kSayNames[std::get<2>(param.param)];
                         });

TEST_F(DecodeRoleTest, RenewingKeepsALeaseThatWaitsForItsKv) {
  const uint64_t lease = Admit(HandedOver("a", 40, 4));
  for (int ms = 900; ms < 5000; ms += 900) {
    Post(Renew({lease}), ms);
    core_.Tick(At(ms + 50));
    EXPECT_TRUE(inbox_.forgotten.empty());
  }
  EndKv(lease, Arrived(40));
  EXPECT_TRUE(core_.has_work());
}

TEST_F(DecodeRoleTest, AReleasedKeyCanBeReservedAgainAtOnce) {
  const uint64_t lease = Admit(HandedOver("a", 40, 4));
  Post(Release("a", lease));
  const uint64_t next = Admit(HandedOver("a", 40, 4));
  FailKv(lease, absl::CancelledError());
  EXPECT_TRUE(Events().empty());
  EndKv(next, Arrived(40));
  EXPECT_TRUE(Events().at(0).has_committed());
}

TEST_F(DecodeRoleTest, TheWorkersEndIsSaidAtOnceAndALateTransferIsHarmless) {
  const uint64_t lease = Admit(HandedOver("a", 40, 4));
  core_.FailAll(worker::MakeError(v1::DRAINING_WORKER, "stopping"));
  EXPECT_EQ(OnlyEvent().failed().error().reason(), v1::DRAINING_WORKER);
  EndKv(lease, Arrived(40));
  EXPECT_TRUE(Events().empty());
  EXPECT_EQ(free(), total());
}

}  // namespace
}  // namespace sluice::decode_worker
