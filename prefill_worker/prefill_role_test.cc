#include "prefill_worker/prefill_role.h"

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

namespace sluice::prefill_worker {
namespace {

using kvtransfer::Sender;
using testing::ElementsAre;
using testing::Pair;
using worker::Cancel;
using worker::Hello;
using worker::ScriptedEngine;

constexpr uint64_t kIncarnation = 77;
constexpr uint64_t kDecode = 42;
constexpr kernels::KvLayout kLayout{6, 2, 8, 16, kernels::KvDType::kF32};
constexpr worker::StreamId kStream = 1;
constexpr int kBlock = 16;

absl::Time At(int ms) {
  return absl::UnixEpoch() + absl::Milliseconds(ms);
}

// Remembers what was asked of it; the test plays the transfer.
struct ScriptedOutbox final : KvOutbox {
  struct Transfer {
    bool open = true;
    std::vector<int32_t> blocks;
    std::vector<std::pair<int, int>> sent, layers;
    std::vector<v1::Commit> commits;
    std::vector<absl::Status> cancels;
  };
  void Open(TransferId id, v1::RequestKey, std::vector<int32_t> blocks) override {
    EXPECT_FALSE(transfers[id.lease_id].open && !transfers[id.lease_id].blocks.empty()) << "opened twice";
    transfers[id.lease_id] = {.blocks = std::move(blocks)};
  }
  void AddBlocks(TransferId id, int begin, int end, LayerRange layers) override {
    EXPECT_TRUE(transfers.at(id.lease_id).commits.empty()) << "blocks after the commit";
    transfers.at(id.lease_id).sent.emplace_back(begin, end);
    transfers.at(id.lease_id).layers.emplace_back(layers.begin, layers.end);
  }
  void Commit(TransferId id, v1::Commit commit) override {
    transfers.at(id.lease_id).commits.push_back(std::move(commit));
  }
  void Cancel(TransferId id, absl::Status why) override { transfers.at(id.lease_id).cancels.push_back(std::move(why)); }
  std::map<uint64_t, Transfer> transfers;  // by lease
};

v1::RouterMessage Prefill(const std::string& id, int prompt, int max_tokens, uint64_t lease, int64_t remaining_ms = 0) {
  v1::RouterMessage message = worker::Prefill(id);
  v1::Prefill& prefill = *message.mutable_prefill();
  *prefill.mutable_sequence() = worker::Spec(prompt, max_tokens);
  prefill.set_remaining_ms(remaining_ms);
  if (lease != 0) {
    prefill.mutable_lease()->set_decode_incarnation(kDecode);
    prefill.mutable_lease()->set_lease_id(lease);
  }
  return message;
}

class PrefillRoleTest : public testing::Test {
 protected:
  PrefillRoleTest() { Greet(kStream); }

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
  // The events in short: "chunk 32", "token 0", "finished", ...
  std::vector<std::string> Story() {
    std::vector<std::string> story;
    for (const v1::WorkerEvent& e : Events()) {
      if (e.has_tokens()) story.push_back("token " + std::to_string(e.tokens().first_index()));
      if (e.has_finished()) story.push_back("finished");
      if (e.has_failed()) story.push_back("failed " + v1::ErrorReason_Name(e.failed().error().reason()));
      if (e.has_refused()) story.push_back("refused " + v1::ErrorReason_Name(e.refused().error().reason()));
      for (const v1::TimelineEvent& t : e.progress().events()) {
        story.push_back(t.name() + " " + std::to_string(t.amount()));
      }
    }
    return story;
  }
  void Step(int ms = 0) {
    ASSERT_TRUE(core_.Step([ms] { return At(ms); }).ok());
    core_.AfterStep();
  }
  void EndTransfer(uint64_t lease, absl::Status status, int ms = 0) {
    ASSERT_TRUE(std::exchange(outbox_.transfers.at(lease).open, false)) << "a transfer ends once";
    Sender::End end;
    end.lease_id = lease;
    end.status = std::move(status);
    role_.OnTransferEnd({kDecode, lease}, end, At(ms));
  }
  int free() const { return engine_.stats().blocks_free; }
  int total() const { return engine_.stats().blocks_total; }

  ScriptedEngine engine_;
  ScriptedOutbox outbox_;
  worker::RequestTable requests_{absl::Milliseconds(1000)};
  PrefillRole role_{kLayout, engine_, requests_, outbox_};
  worker::WorkerCore core_{{kIncarnation, /*vocab=*/100}, engine_, requests_, role_};
};

// 32 tokens a step.
TEST_F(PrefillRoleTest, BlocksFlowAsTheyFinishAndTheCommitComesLast) {
  Post(Prefill("a", 75, 9, 5), /*ms=*/100);
  EXPECT_TRUE(Events().empty()) << "an accepted prefill is answered by its progress";
  EXPECT_TRUE(outbox_.transfers.empty()) << "nothing is open before there is something to send";
  EXPECT_EQ(free(), total() - 5) << "the prompt's blocks, not the answer's";
  Step(110);
  EXPECT_EQ(outbox_.transfers[5].blocks.size(), 5u);
  EXPECT_THAT(Story(), ElementsAre("prefill_chunk 32"));
  EXPECT_THAT(outbox_.transfers[5].sent, ElementsAre(Pair(0, 2)));
  role_.OnAcked({kDecode, 5}, 100, At(111));
  role_.OnAcked({kDecode, 5}, 200, At(112));
  Step(120);
  EXPECT_THAT(Story(), ElementsAre("piece_acked 200", "prefill_chunk 64")) << "one entry for a batch of acks";
  Step(130);
  EXPECT_THAT(Story(), ElementsAre("prefill_chunk 75", "token 0", "first_token 0"));
  EXPECT_THAT(outbox_.transfers[5].sent, ElementsAre(Pair(0, 2), Pair(2, 4), Pair(4, 5)));
  ASSERT_EQ(outbox_.transfers[5].commits.size(), 1u);
  const v1::Commit& commit = outbox_.transfers[5].commits[0];
  EXPECT_EQ(commit.computed_tokens(), 75);
  ASSERT_EQ(commit.first_tokens_size(), 1);
  EXPECT_EQ(commit.first_tokens(0).token_id(), ScriptedEngine::TokenAt({3}, 0));
  EXPECT_FALSE(commit.first_tokens(0).finished());
  EXPECT_FALSE(core_.has_work());
  EXPECT_EQ(free(), total() - 5) << "pinned until the transfer has ended";
  EndTransfer(5, absl::OkStatus(), 137);
  const std::vector<v1::WorkerEvent> events = Events();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].progress().events(0).name(), "transfer_done");
  EXPECT_EQ(events[0].progress().events(0).amount(), 7000) << "microseconds after the last step";
  EXPECT_EQ(events[0].progress().events(0).at_ms(), 37.0) << "since the message came";
  EXPECT_EQ(free(), total());
  EXPECT_EQ(core_.live_requests(), 0u);
}

// The last chunk of 11 tokens: one block of 128 KiB a layer, so two layers at once.
class LayerByLayer : public testing::Test {
 protected:
  LayerByLayer() {
    core_.OnMessage(kStream, Hello(kIncarnation), At(0));
    core_.OnMessage(kStream, Prefill("a", 75, 9, 5), At(0));
    Step();
    Step();
    outbox_.transfers[5].layers.clear();
    id_ = requests_.All().at(0);
  }
  // A step as the engine plans it.
  engine::StepWork Plan(int begin, int count) {
    engine::StepWork step;
    engine::Chunk& chunk = step.plan.chunks.emplace_back();
    chunk.sequence = std::make_shared<engine::Sequence>();
    chunk.sequence->id = id_;
    chunk.begin = begin;
    chunk.count = count;
    role_.OnPlanned(step);
    return step;
  }
  void Step() {
    ASSERT_TRUE(core_.Step([] { return At(0); }).ok());
    core_.AfterStep();
  }
  const std::vector<std::pair<int, int>>& layers() { return outbox_.transfers[5].layers; }

  const kernels::KvLayout layout_{5, 2, 512, 16, kernels::KvDType::kF32};
  ScriptedEngine engine_;
  ScriptedOutbox outbox_;
  worker::RequestTable requests_{absl::Milliseconds(1000)};
  PrefillRole role_{layout_, engine_, requests_, outbox_};
  worker::WorkerCore core_{{kIncarnation, /*vocab=*/100}, engine_, requests_, role_};
  uint64_t id_ = 0;
};

TEST_F(LayerByLayer, TheLastChunkLeavesInGroupsOfLayersAndTheRestAfterTheStep) {
  const engine::StepWork step = Plan(64, 11);
  ASSERT_TRUE(step.after_layer);
  for (int done = 1; done <= 4; ++done) step.after_layer(done);
  EXPECT_THAT(layers(), ElementsAre(Pair(0, 2), Pair(2, 4)));
  EXPECT_EQ(outbox_.transfers[5].sent.back(), std::pair(4, 5));
  EXPECT_TRUE(outbox_.transfers[5].commits.empty());
  step.after_layer(5);
  Step();
  EXPECT_THAT(layers(), ElementsAre(Pair(0, 2), Pair(2, 4), Pair(4, 5)));
  EXPECT_EQ(outbox_.transfers[5].commits.size(), 1u);
}

// Where steps are planned ahead, the last chunk is planned while the one before it runs, and nothing of it leaves then.
TEST(PlannedAhead, TheLastChunkLeavesWhenItIsComputed) {
  const kernels::KvLayout layout{5, 2, 512, 16, kernels::KvDType::kF32};
  ScriptedEngine engine;
  ScriptedOutbox outbox;
  worker::RequestTable requests{absl::Milliseconds(1000)};
  PrefillRole role{layout, engine, requests, outbox};
  worker::WorkerCore core{{kIncarnation, /*vocab=*/100}, engine, requests, role};
  core.OnMessage(kStream, Hello(kIncarnation), At(0));
  core.OnMessage(kStream, Prefill("a", 75, 9, 5), At(0));
  ASSERT_TRUE(core.Step([] { return At(0); }).ok());
  core.AfterStep();
  engine::StepWork last;  // of tokens 64 to 75, planned before the step of 32 to 64 is committed
  engine::Chunk& chunk = last.plan.chunks.emplace_back();
  chunk.sequence = std::make_shared<engine::Sequence>();
  chunk.sequence->id = requests.All().at(0);
  chunk.begin = 64;
  chunk.count = 11;
  role.OnPlanned(last);
  outbox.transfers[5].layers.clear();
  ASSERT_TRUE(core.Step([] { return At(0); }).ok());
  core.AfterStep();
  EXPECT_THAT(outbox.transfers[5].layers, testing::IsEmpty()) << "the last chunk is not computed yet";
  ASSERT_TRUE(last.after_layer);
  last.after_layer(3);
  EXPECT_THAT(outbox.transfers[5].sent.back(), Pair(2, 5)) << "with the blocks that ended meanwhile";
  ASSERT_TRUE(core.Step([] { return At(0); }).ok());
  core.AfterStep();
  EXPECT_EQ(outbox.transfers[5].layers.back().second, 5);
  EXPECT_EQ(outbox.transfers[5].commits.size(), 1u);
}

TEST_F(LayerByLayer, WhatAnExecutorNeverSaidFollowsTheStep) {
  const engine::StepWork step = Plan(64, 11);
  Step();
  EXPECT_THAT(layers(), ElementsAre(Pair(0, 5)));
}

TEST_F(LayerByLayer, OtherChunksDoNot) {
  EXPECT_FALSE(Plan(32, 32).after_layer);
}

TEST_F(LayerByLayer, ACancelInTheMiddleOfTheStepWaitsForTheTransfersEnd) {
  const engine::StepWork step = Plan(64, 11);
  step.after_layer(2);
  core_.OnMessage(kStream, Cancel("a"), At(1));
  EXPECT_EQ(outbox_.transfers[5].cancels.size(), 1u);
  step.after_layer(4);  // the outbox knows that it is over
  EXPECT_LT(engine_.stats().blocks_free, engine_.stats().blocks_total);
}

TEST_F(PrefillRoleTest, BlockBoundaries) {
  for (const auto& [prompt, last] : std::map<int, std::pair<int, int>>{
           {31, {0, 2}}, {32, {0, 2}}, {33, {2, 3}}, {47, {2, 3}}, {48, {2, 3}}, {49, {2, 4}}}) {
    Post(Prefill("a", prompt, 9, 5));
    while (core_.has_work()) Step();
    EXPECT_EQ(outbox_.transfers[5].sent.back(), last) << prompt;
    EXPECT_EQ(outbox_.transfers[5].commits.size(), 1u);
    EndTransfer(5, absl::OkStatus());
    outbox_.transfers.clear();
    Events();
  }
  EXPECT_EQ(free(), total());
}

TEST_F(PrefillRoleTest, WhatTheDecodeWorkerHasIsNotSent) {
  v1::RouterMessage message = Prefill("a", 75, 9, 5);
  message.mutable_prefill()->set_decode_prefix_tokens(48);
  Post(message);
  while (core_.has_work()) Step();
  EXPECT_THAT(outbox_.transfers[5].sent, ElementsAre(Pair(3, 4), Pair(4, 5)));
}

TEST_F(PrefillRoleTest, ThePromptsLogprobsGoWithTheFirstToken) {
  for (const uint64_t lease : {0, 5}) {
    v1::RouterMessage message = Prefill("a", 40, lease == 0 ? 1 : 9, lease);
    message.mutable_prefill()->mutable_sequence()->mutable_sampling()->set_prompt_logprobs(0);
    Post(message);
    int came = 0;
    while (core_.has_work()) {
      Step();
      for (const v1::WorkerEvent& e : Events()) came += e.tokens().prompt_logprobs_size();
    }
    EXPECT_EQ(came, 39);
  }
}

TEST_F(PrefillRoleTest, OneTokenNeedsNoLease) {
  Post(Prefill("a", 20, 1, 0));
  Step();
  EXPECT_THAT(Story(), ElementsAre("prefill_chunk 20", "token 0", "first_token 0", "finished"));
  EXPECT_TRUE(outbox_.transfers.empty());
  EXPECT_EQ(free(), total());
  EXPECT_EQ(core_.live_requests(), 0u);
}

TEST(PrefillRoleStop, AnAnswerThatIsOverWithItsFirstTokenIsNotHandedOver) {
  ScriptedEngine engine({.stop_token = ScriptedEngine::TokenAt({3}, 0)});
  ScriptedOutbox outbox;
  worker::RequestTable requests(absl::Seconds(1));
  PrefillRole role(kLayout, engine, requests, outbox);
  worker::WorkerCore core({kIncarnation, 100}, engine, requests, role);
  core.OnMessage(1, Hello(kIncarnation), At(0));
  core.OnMessage(1, Prefill("a", 20, 9, 5), At(0));
  ASSERT_TRUE(core.Step([] { return At(0); }).ok());
  core.AfterStep();
  const std::vector<worker::Outgoing> out = core.TakeOutgoing();
  ASSERT_EQ(out.size(), 1u);
  const v1::WorkerEvent& last = *out[0].message.events().rbegin();
  EXPECT_TRUE(last.finished().last());
  EXPECT_EQ(last.finished().reason(), v1::FINISH_REASON_STOP);
  EXPECT_TRUE(outbox.transfers[5].commits.empty());
  ASSERT_EQ(outbox.transfers[5].cancels.size(), 1u);
  EXPECT_LT(engine.stats().blocks_free, engine.stats().blocks_total);
  core.OnMessage(1, Cancel("a"), At(0));
  role.OnTransferEnd({kDecode, 5}, {.status = absl::CancelledError()}, At(0));
  EXPECT_TRUE(core.TakeOutgoing().empty()) << "the end was said already";
  EXPECT_EQ(engine.stats().blocks_free, engine.stats().blocks_total);
  EXPECT_EQ(core.live_requests(), 0u);
}

TEST_F(PrefillRoleTest, RefusesWhatCannotBe) {
  v1::RouterMessage half = Prefill("a", 40, 9, 5), all = half, negative = half;
  half.mutable_prefill()->set_decode_prefix_tokens(8);
  all.mutable_prefill()->set_decode_prefix_tokens(48);
  negative.mutable_prefill()->set_decode_prefix_tokens(-16);
  for (const v1::RouterMessage& bad : {half, all, negative, Prefill("a", 40, 2, 0), Prefill("", 40, 9, 5),
                                       Prefill("a", 0, 9, 5), Prefill("a", 500, 50, 5)}) {
    Post(bad);
    EXPECT_THAT(Story(), ElementsAre("refused INVALID_REQUEST")) << bad.ShortDebugString();
  }
  Post(Prefill("a", 40, 9, 5, /*remaining_ms=*/-1));
  EXPECT_THAT(Story(), ElementsAre("refused DEADLINE"));
  v1::RouterMessage split = worker::Reserve("a", 5, 3);
  split.mutable_reserve()->set_compute_prompt(false);
  Post(split);
  EXPECT_THAT(Story(), ElementsAre("refused INCOMPATIBLE"));
  EXPECT_TRUE(outbox_.transfers.empty());
  EXPECT_EQ(free(), total());
  EXPECT_EQ(core_.live_requests(), 0u);
  EXPECT_EQ(core_.NextTimer(), absl::InfiniteFuture());
  Post(Prefill("a", 40, 9, 5));
  Post(Prefill("b", 40, 9, 5));
  EXPECT_THAT(Story(), ElementsAre("refused INVALID_REQUEST")) << "one lease is one transfer";
}

// Where no decode worker is alive.
TEST_F(PrefillRoleTest, ComputesWholeAnswersBesidePrompts) {
  Post(worker::Reserve("a", 5, 3));
  Post(Prefill("b", 40, 9, 5));
  std::vector<std::string> of_a;
  for (int i = 0; i < 6; ++i) {
    Step();
    for (const std::string& said : Story()) of_a.push_back(said);
  }
  EXPECT_THAT(of_a, ::testing::Contains(::testing::HasSubstr("finished")));
  Post(worker::Reserve("c", 5, 300));
  Step();
  Post(worker::Cancel("c"));
  EXPECT_THAT(Story(), ::testing::Contains(::testing::HasSubstr("failed CANCELLED_BY_CLIENT")));
  EXPECT_EQ(core_.live_requests(), 1u) << "b waits for its transfer";
}

TEST(PrefillRoleSmallPool, RefusesWithoutBlocks) {
  ScriptedEngine engine({.num_blocks = 4});
  ScriptedOutbox outbox;
  worker::RequestTable requests(absl::Seconds(1));
  PrefillRole role(kLayout, engine, requests, outbox);
  worker::WorkerCore core({kIncarnation, 100}, engine, requests, role);
  core.OnMessage(1, Hello(kIncarnation), At(0));
  core.OnMessage(1, Prefill("a", 60, 9, 5), At(0));
  core.OnMessage(1, Prefill("b", 10, 9, 6), At(0));
  core.OnMessage(1, Prefill("c", 70, 9, 7), At(0));
  const std::vector<worker::Outgoing> out = core.TakeOutgoing();
  ASSERT_EQ(out[0].message.events_size(), 2);
  EXPECT_EQ(out[0].message.events(0).refused().error().reason(), v1::NO_BLOCKS);
  EXPECT_EQ(out[0].message.events(1).refused().error().reason(), v1::NEVER_FITS);
  EXPECT_FALSE(outbox.transfers.contains(6));
}

// ---- every way to end, in every state ----

struct Way {
  std::string name;
  std::function<void(worker::WorkerCore&)> act;
  std::string reason;  // empty: it ends without a word
};
const Way kWays[] = {
    {"Cancel", [](auto& core) { core.OnMessage(kStream, Cancel("a"), At(10)); }, "failed CANCELLED_BY_CLIENT"},
    {"Deadline", [](auto& core) { core.Tick(At(500)); }, "failed DEADLINE"},
    {"StreamEnd", [](auto& core) { core.OnStreamEnd(kStream); }, ""},
    {"TransferLost", nullptr, "failed TRANSFER_FAILED"},
    {"ChecksumMismatch", nullptr, "failed CHECKSUM_MISMATCH"},
    {"LeaseExpiredAtDecode", nullptr, "failed LEASE_EXPIRED"},
};

absl::Status StatusOf(const Way& way) {
  if (way.name == "TransferLost") return absl::UnavailableError("the decode worker ended the link");
  if (way.name == "ChecksumMismatch") return absl::DataLossError("wrong checksum");
  return kvtransfer::FromErrorInfo(worker::MakeError(v1::LEASE_EXPIRED, "the router did not renew the lease"));
}

class EveryEnd : public PrefillRoleTest, public testing::WithParamInterface<std::tuple<int, int>> {};

TEST_P(EveryEnd, PinsTheBlocksUntilTheTransferEndsAndSaysSoOnce) {
  const Way& way = kWays[std::get<0>(GetParam())];
  const int steps = std::get<1>(GetParam());  // 1: in the prompt, 3: handing over
  Greet(2, /*router=*/8);
  Post(Prefill("bystander", 90, 9, 6, /*remaining_ms=*/9000), 0, 2);
  const int baseline = free();
  Post(Prefill("a", 75, 9, 5, way.name == "Deadline" ? 500 : 0));
  for (int i = 0; i < steps; ++i) Step();
  Events();
  if (way.act != nullptr) {
    way.act(core_);
    EXPECT_TRUE(Events().empty());
    EXPECT_EQ(outbox_.transfers[5].cancels.size(), 1u);
    EXPECT_LT(free(), baseline) << "the transfer may still read";
    way.act(core_);
    role_.OnAcked({kDecode, 5}, 64, At(11));
    for (int i = 0; i < 3; ++i) Step();
    EXPECT_EQ(outbox_.transfers[5].commits.size(), steps == 3 ? 1u : 0u) << "a stopped request is not computed";
    for (const v1::WorkerEvent& e : Events()) EXPECT_EQ(e.key().request_id(), "bystander");
    EXPECT_EQ(outbox_.transfers[5].cancels.size(), 1u);
    // A commit that crossed the cancel changes nothing.
    EndTransfer(5, steps == 3 ? absl::OkStatus() : absl::CancelledError());
  } else {
    EndTransfer(5, StatusOf(way));
  }
  EXPECT_EQ(free(), baseline);
  if (way.reason.empty()) {
    EXPECT_TRUE(Events().empty());
  } else {
    EXPECT_THAT(Story(), ElementsAre(way.reason));
  }
  for (int i = 0; i < 3; ++i) Step();
  EXPECT_EQ(outbox_.transfers[6].commits.size(), 1u);
  EndTransfer(6, absl::OkStatus());
  EXPECT_EQ(free(), total());
  EXPECT_EQ(core_.live_requests(), 0u);
  EXPECT_EQ(core_.NextTimer(), absl::InfiniteFuture());
}

INSTANTIATE_TEST_SUITE_P(AllStates, EveryEnd,
                         testing::Combine(testing::Range(0, int(std::size(kWays))), testing::Values(1, 3)),
                         [](const auto& param) {
                           return kWays[std::get<0>(param.param)].name + "After" +
                                  std::to_string(std::get<1>(param.param)) + "Steps";
                         });

TEST_F(PrefillRoleTest, WhoIsStoppedBeforeTheFirstChunkLeavesAtOnce) {
  for (const Way& way : kWays) {
    if (way.act == nullptr) continue;
    SCOPED_TRACE(way.name);
    Post(Prefill("a", 75, 9, 5, way.name == "Deadline" ? 500 : 0));
    Events();
    way.act(core_);
    EXPECT_EQ(free(), total());
    EXPECT_EQ(core_.live_requests(), 0u);
    if (way.reason.empty()) break;  // the stream is gone
    EXPECT_THAT(Story(), ElementsAre(way.reason));
  }
  Step();
  EXPECT_TRUE(outbox_.transfers.empty());
}

TEST_F(PrefillRoleTest, OneTokenCanBeCancelled) {
  Post(Prefill("a", 75, 1, 0));
  Step();
  Events();
  Post(Cancel("a"));
  EXPECT_THAT(Story(), ElementsAre("failed CANCELLED_BY_CLIENT"));
  EXPECT_EQ(free(), total());
}

}  // namespace
}  // namespace sluice::prefill_worker
