// The core over pools of prefill and decode workers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "router/testing/core_world.h"

namespace sluice::router {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr RouterCore::Sizes kEmpty{};
constexpr uint64_t kP = 1;  // incarnation and session
constexpr uint64_t kD = 2;

// One P and one D, paired.
World PairedWorld(const CoreOptions& options = {}) {
  World world(options);
  world.Join(kP, kP, 100, pb::ROLE_PREFILL);
  world.Join(kD, kD, 100, pb::ROLE_DECODE);
  world.ReportPairs(kP, {World::Up(kD)});
  return world;
}

std::vector<uint64_t> Peers(const pb::AnnounceReply& reply) {
  std::vector<uint64_t> peers;
  for (const pb::DecodePeer& peer : reply.decode_peers()) peers.push_back(peer.incarnation());
  return peers;
}

TEST(CoreSplitTest, AnswersARequest) {
  World world = PairedWorld();
  EXPECT_TRUE(world.pool_.serving);
  EXPECT_EQ(world.pool_.token_capacity, 1600);
  world.Submit(10);
  EXPECT_EQ(world.WorkerOf(10), kD);
  EXPECT_EQ(world.PrefillsTo(kP), 0) << "not before the lease";
  world.Grant(kD, 10);
  ASSERT_EQ(world.prefilled_.at(10), kP);
  EXPECT_EQ(world.prefills_.at(10).lease().decode_incarnation(), kD);
  EXPECT_EQ(world.prefills_.at(10).lease().lease_id(), 1010u);
  world.SendTokens(kP, 10, 0, 1);
  EXPECT_EQ(world.tokens_[10], 1) << "at once";
  world.Commit(kD, 10);
  world.Progress(kP, 10, "transfer_done", 700);
  EXPECT_EQ(world.core_.sizes().attempts, 1) << "P is done with it";
  world.SendTokens(kD, 10, 1, 7);
  world.Finish(kD, 10);
  EXPECT_TRUE(world.EndOf(10).ok());
  EXPECT_EQ(world.tokens_[10], 8);
  EXPECT_EQ(world.core_.sizes(), kEmpty);
  EXPECT_EQ(world.Cancels(), 0);
  EXPECT_EQ(world.ReleasesTo(kD), 0);
}

TEST(CoreSplitTest, AnswersWhateverComesFirst) {
  World world = PairedWorld();
  world.Submit(10);
  world.Grant(kD, 10);
  world.Commit(kD, 10);
  world.SendTokens(kD, 10, 1, 7);
  world.Finish(kD, 10);
  EXPECT_EQ(world.tokens_[10], 0);
  EXPECT_FALSE(world.Ended(10));
  world.SendTokens(kP, 10, 0, 1);
  EXPECT_TRUE(world.EndOf(10).ok());
  EXPECT_EQ(world.tokens_[10], 8);
  EXPECT_EQ(world.core_.sizes().closing, 1) << "P still holds its blocks";
  EXPECT_EQ(world.Cancels(), 0) << "and ends by itself";
  world.Progress(kP, 10, "transfer_done");
  EXPECT_EQ(world.core_.sizes(), kEmpty);
}

TEST(CoreSplitTest, OneTokenNeedsNoDecodeWorker) {
  CoreOptions options;
  options.policy.fallback = false;
  World world(options);
  world.Join(kP, kP, 100, pb::ROLE_PREFILL);
  EXPECT_FALSE(world.pool_.serving);
  world.Submit(10, 1);
  ASSERT_EQ(world.prefilled_.at(10), kP);
  EXPECT_FALSE(world.prefills_.at(10).has_lease());
  world.SendTokens(kP, 10, 0, 1);
  world.Finish(kP, 10);
  EXPECT_TRUE(world.EndOf(10).ok());
  EXPECT_EQ(world.core_.sizes(), kEmpty);
  world.Join(kD, kD, 100, pb::ROLE_DECODE);
  world.ReportPairs(kP, {World::Up(kD)});
  world.Submit(11, 1);
  EXPECT_EQ(world.ReservesTo(kD), 0);
}

TEST(CoreSplitTest, AStopAtTheFirstTokenReleasesTheLease) {
  World world = PairedWorld();
  world.Submit(10);
  world.Grant(kD, 10);
  world.SendTokens(kP, 10, 0, 1);
  world.Finish(kP, 10);
  EXPECT_TRUE(world.EndOf(10).ok());
  EXPECT_EQ(world.ReleasesTo(kD), 1);
  EXPECT_EQ(world.Cancels(), 0);
  EXPECT_EQ(world.core_.sizes(), kEmpty);
  world.Fail(kD, 10, absl::StatusCode::kCancelled, pb::CANCELLED_BY_CLIENT);  // P's cancel came there first
  EXPECT_EQ(world.core_.sizes(), kEmpty);
}

TEST(CoreSplitTest, AStopAtTheFirstTokenThatDHeardFirst) {
  World world = PairedWorld();
  world.Submit(10);
  world.Grant(kD, 10);
  world.Fail(kD, 10, absl::StatusCode::kCancelled, pb::CANCELLED_BY_CLIENT);
  EXPECT_FALSE(world.Ended(10));
  world.SendTokens(kP, 10, 0, 1);
  world.Finish(kP, 10);
  EXPECT_TRUE(world.EndOf(10).ok());
  EXPECT_EQ(world.core_.sizes(), kEmpty);
}

// ---- registration ----

TEST(CoreSplitTest, PrefillWorkersAreToldOfDecodeWorkersAsTheyComeAndGo) {
  World world;
  world.Join(kP, kP, 100, pb::ROLE_PREFILL);
  ASSERT_EQ(world.answers_[kP].size(), 1u);
  EXPECT_TRUE(world.answers_[kP][0].peers_valid());
  EXPECT_THAT(Peers(world.answers_[kP][0]), IsEmpty());
  pb::WorkerInfo info = Info(kD, 7002, 100, pb::ROLE_DECODE);
  info.add_ranks()->mutable_control()->set_port(9002);
  world.Do(WorkerAnnounced{kD, info});
  ASSERT_EQ(world.answers_[kP].size(), 2u);
  const pb::AnnounceReply& reply = world.answers_[kP][1];
  EXPECT_TRUE(reply.peers_valid());
  EXPECT_GT(reply.heartbeat_ms(), 0) << "complete, as the first one";
  EXPECT_THAT(Peers(reply), ElementsAre(kD));
  EXPECT_EQ(reply.decode_peers(0).control().host(), "127.0.0.1");
  EXPECT_EQ(reply.decode_peers(0).control().port(), 9002);
  EXPECT_FALSE(world.answers_[kD][0].peers_valid());
  world.Join(3, 3, 100, pb::ROLE_DECODE);
  EXPECT_THAT(Peers(world.answers_[kP].back()), ElementsAre(kD, 3));
  EXPECT_EQ(world.answers_[kP].back().decode_peers(1).control().port(), 7003) << "where it listens";
  world.Join(4, 4, 100, pb::ROLE_BOTH);
  EXPECT_EQ(world.answers_[kP].size(), 3u) << "nothing changed for it";
  world.Do(AnnounceLost{kD});
  EXPECT_EQ(world.answers_[kP].size(), 3u) << "suspects may be in the middle of a transfer";
  world.Do(WorkerLeaving{3});
  EXPECT_THAT(Peers(world.answers_[kP].back()), ElementsAre(kD));
  world.Join(5, 5, 100, pb::ROLE_PREFILL);
  EXPECT_THAT(Peers(world.answers_[5].back()), ElementsAre(kD));
  world.Do(AnnounceLost{kP});
  world.Do(WorkerAnnounced{6, Info(kP, 7001, 100, pb::ROLE_PREFILL)});
  EXPECT_THAT(Peers(world.answers_[6].back()), ElementsAre(kD)) << "on its new stream too";
}

TEST(CoreSplitTest, OnlyPairsThatAreUpServe) {
  World world;
  world.Join(kP, kP, 100, pb::ROLE_PREFILL);
  world.Join(kD, kD, 100, pb::ROLE_DECODE);
  EXPECT_FALSE(world.pool_.serving);
  world.Submit(10);
  EXPECT_FALSE(world.Reserved(10));
  EXPECT_FALSE(world.Ended(10)) << "the pair may come up";
  world.ReportPairs(kP, {World::Up(kD)});
  EXPECT_TRUE(world.pool_.serving);
  EXPECT_TRUE(world.Reserved(10));
  world.ReportPairs(kP, {});
  EXPECT_FALSE(world.pool_.serving);
  world.Submit(11);
  EXPECT_FALSE(world.Reserved(11));
}

TEST(CoreSplitTest, AMisfitIsLoggedOnceAndServesNobody) {
  World world;
  world.Join(kP, kP, 100, pb::ROLE_PREFILL);
  world.Join(kD, kD, 100, pb::ROLE_DECODE);
  world.Submit(10);
  for (int i = 0; i < 3; ++i) world.ReportPairs(kP, {World::Misfit(kD)});
  const auto logged = [&](const std::string& text) {
    return std::count_if(world.notes_.begin(), world.notes_.end(),
                         [&](const std::string& note) { return note.find(text) != std::string::npos; });
  };
  EXPECT_EQ(logged("pair prefill 127.0.0.1:7001 with decode 127.0.0.1:7002 is refused"), 1);
  EXPECT_EQ(logged("another kv_dtype"), 1);
  EXPECT_EQ(world.EndOf(10).code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(world.EndOf(10).message()), HasSubstr("no prefill worker fits any decode worker"));
  EXPECT_FALSE(world.pool_.serving);
  world.Join(3, 3, 100, pb::ROLE_DECODE);
  world.ReportPairs(kP, {World::Misfit(kD), World::Up(3)});
  world.Submit(11);
  EXPECT_EQ(world.WorkerOf(11), 3u);
}

TEST(CoreSplitTest, AMissingRoleIsNamedAtOnce) {
  CoreOptions options;
  options.policy.fallback = false;
  World world(options);
  world.Join(kP, kP, 100, pb::ROLE_PREFILL);
  world.Submit(10);
  EXPECT_EQ(world.EndOf(10).code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(world.EndOf(10).message()), HasSubstr("no decode worker is alive"));
  world.Join(kD, kD, 100, pb::ROLE_DECODE);
  world.ReportPairs(kP, {World::Up(kD)});
  for (uint64_t call = 20; call < 26; ++call) world.Submit(call);  // four rows, two wait
  EXPECT_EQ(world.core_.sizes().queued, 2);
  world.Do(WorkerLeaving{kP});
  EXPECT_FALSE(world.pool_.serving);
  for (uint64_t call = 20; call < 26; ++call) {
    EXPECT_EQ(world.EndOf(call).code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(std::string(world.EndOf(call).message()), HasSubstr("no prefill worker is alive"));
  }
  EXPECT_EQ(world.CancelsTo(kD), 4) << "what was reserved is given back";
  for (uint64_t call = 20; call < 24; ++call) world.Fail(kD, call, absl::StatusCode::kCancelled);
  EXPECT_EQ(world.core_.sizes(), kEmpty);
}

// ---- placement ----

TEST(CoreSplitTest, RequestsSpreadOverBothPools) {
  World world;
  for (uint64_t i : {1, 2}) world.Join(i, i, 1000, pb::ROLE_PREFILL);
  for (uint64_t i : {3, 4}) world.Join(i, i, 1000, pb::ROLE_DECODE);
  for (uint64_t i : {1, 2}) world.ReportPairs(i, {World::Up(3), World::Up(4)}, 1000);
  std::map<uint64_t, int> on_p, on_d;
  for (uint64_t call = 10; call < 18; ++call) {
    world.Submit(call);
    world.Grant(world.WorkerOf(call), call);
    ++on_p[world.prefilled_.at(call)];
    ++on_d[world.WorkerOf(call)];
  }
  EXPECT_EQ(on_p, (std::map<uint64_t, int>{{1, 4}, {2, 4}}));
  EXPECT_EQ(on_d, (std::map<uint64_t, int>{{3, 4}, {4, 4}}));
}

TEST(CoreSplitTest, AMixedClusterTakesTheCheaper) {
  World world = PairedWorld();
  world.Join(3, 3, 100, pb::ROLE_BOTH);
  for (uint64_t call = 10; call < 18; ++call) world.Submit(call);
  EXPECT_EQ(world.ReservesTo(kD), 4);
  EXPECT_EQ(world.ReservesTo(3), 4);
}

TEST(CoreSplitTest, APrefillWorkerGetsAStepAndAHalfBeyondWhatRuns) {
  World world;
  world.Join(kP, kP, 1000, pb::ROLE_PREFILL);  // steps of 64 tokens
  for (uint64_t d = 2; d < 20; ++d) world.Join(d, d, 1000, pb::ROLE_DECODE);
  std::vector<pb::PairStatus> pairs;
  for (uint64_t d = 2; d < 20; ++d) pairs.push_back(World::Up(d));
  world.ReportPairs(kP, pairs, 1000);
  for (uint64_t call = 10; call < 60; ++call) world.Submit(call);  // of 5 tokens each
  EXPECT_EQ(50 - world.core_.sizes().queued, 32) << "160 tokens: a step runs, one and a half wait";
  // One of them is done; there is room for one more.
  uint64_t first = 10;
  world.Grant(world.WorkerOf(first), first);
  world.SendTokens(kP, first, 0, 1);
  EXPECT_EQ(50 - world.core_.sizes().queued, 33);
}

TEST(CoreSplitTest, ThePromptsPrefixAtPNeedsNoRoom) {
  World world = PairedWorld();
  for (uint64_t call = 10; call < 13; ++call) world.Submit(call, 8, absl::InfiniteFuture(), 0, 100);
  EXPECT_TRUE(world.Reserved(12)) << "the first one's blocks will be there: four tokens are left of each other one";
  EXPECT_EQ(world.core_.sizes().promises, 3);
  world.Do(WorkerLeaving{kP});
  world.Do(WorkerLeaving{kD});
  EXPECT_EQ(world.core_.sizes().promises, 0);
}

TEST(CoreSplitTest, ProgressMakesRoomForTheNextPrompt) {
  World world = PairedWorld();
  const auto submit_long = [&](uint64_t call) {
    Submit submit{.call = call, .request_id = absl::StrCat("r", call), .sequence = {}, .received = world.now_};
    for (int i = 0; i < 200; ++i) submit.sequence.add_tokens(int(1000 * call) + i);
    submit.sequence.mutable_sampling()->set_max_tokens(8);
    world.Do(std::move(submit));
  };
  submit_long(10);
  submit_long(11);
  world.Grant(kD, 10);
  EXPECT_FALSE(world.Reserved(11));
  world.Progress(kP, 10, "prefill_chunk", 64);
  world.Progress(kP, 10, "prefill_chunk", 128);
  EXPECT_FALSE(world.Reserved(11));
  world.Progress(kP, 10, "prefill_chunk", 192);
  EXPECT_TRUE(world.Reserved(11)) << "its last step is to run";
}

TEST(CoreSplitTest, WhatFitsNobodyIsTheClientsError) {
  World world;
  world.Join(kP, kP, 2, pb::ROLE_PREFILL);
  world.Join(kD, kD, 100, pb::ROLE_DECODE);
  world.ReportPairs(kP, {World::Up(kD)}, 2);
  world.Submit(10, 1590);
  EXPECT_TRUE(world.Reserved(10)) << "P holds the prompt only";
  world.Submit(11, 1600);
  EXPECT_EQ(world.EndOf(11).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(world.EndOf(11).message()), HasSubstr("sampling.max_tokens: prompt (5 tokens)"));
  Submit submit{.call = 12, .request_id = "r12", .sequence = {}, .received = world.now_};
  for (int i = 0; i < 33; ++i) submit.sequence.add_tokens(i);
  submit.sequence.mutable_sampling()->set_max_tokens(8);
  world.Do(std::move(submit));
  EXPECT_THAT(std::string(world.EndOf(12).message()), HasSubstr("prompt: its 33 tokens"));
}

// ---- refusals ----

TEST(CoreSplitTest, ARefusalOfDGoesElsewhereOrWaitsForAReport) {
  World world = PairedWorld();
  world.Join(3, 3, 100, pb::ROLE_DECODE);
  world.ReportPairs(kP, {World::Up(kD), World::Up(3)});
  world.Submit(10);
  const uint64_t first = world.WorkerOf(10);
  const uint64_t second = 5 - first;
  world.Refuse(first, 10, pb::NO_BLOCKS);
  ASSERT_EQ(world.WorkerOf(10), second);
  world.Refuse(second, 10, pb::NO_BLOCKS);
  EXPECT_EQ(world.core_.sizes().queued, 1);
  EXPECT_EQ(world.core_.sizes().attempts, 0) << "P's share is given back";
  world.Heartbeat(first, 100);
  EXPECT_EQ(world.WorkerOf(10), first);
  EXPECT_EQ(world.keys_[10].attempt(), 3);
}

TEST(CoreSplitTest, ARefusalOfPReleasesTheLeaseAndGoesBackToTheHead) {
  World world = PairedWorld();
  world.Submit(10);
  world.Grant(kD, 10);
  world.Refuse(kP, 10, pb::NO_BLOCKS);
  EXPECT_EQ(world.ReleasesTo(kD), 1);
  EXPECT_EQ(world.core_.sizes().queued, 1);
  EXPECT_EQ(world.core_.sizes().attempts, 0);
  world.Submit(11);
  EXPECT_FALSE(world.Reserved(11)) << "the head goes first";
  world.sent_.clear();
  world.ReportPairs(kP, {World::Up(kD)});
  ASSERT_EQ(world.ReservesTo(kD), 2);
  EXPECT_EQ(world.sent_[0].message.reserve().key().request_id(), "r10/10");
  world.Grant(kD, 10);
  world.SendTokens(kP, 10, 0, 1);
  EXPECT_EQ(world.tokens_[10], 1);
}

// ---- ends ----

TEST(CoreSplitTest, CancelInEveryStateTellsBothSides) {
  World world = PairedWorld();
  for (uint64_t call = 10; call < 15; ++call) world.Submit(call);
  for (uint64_t call = 11; call < 14; ++call) world.Grant(kD, call);
  for (uint64_t call = 12; call < 14; ++call) world.SendTokens(kP, call, 0, 1);
  world.Commit(kD, 13);
  world.Progress(kP, 13, "transfer_done");
  ASSERT_FALSE(world.Reserved(14));
  for (uint64_t call : {14, 10, 11, 12, 13}) {
    world.Do(ClientCancel{call, absl::CancelledError("gone")});
    EXPECT_EQ(world.EndOf(call).code(), absl::StatusCode::kCancelled);
  }
  EXPECT_EQ(world.CancelsTo(kD), 4);
  EXPECT_EQ(world.CancelsTo(kP), 2) << "not for what it never heard of or is done with";
  EXPECT_EQ(world.core_.sizes().closing, 6);
  world.Grant(kD, 10);  // it was on its way
  EXPECT_EQ(world.PrefillsTo(kP), 3) << "and is of nobody";
  world.SendTokens(kP, 11, 0, 1);
  for (uint64_t call : {10, 11, 12, 13}) world.Fail(kD, call, absl::StatusCode::kCancelled);
  EXPECT_EQ(world.core_.sizes().closing, 2);
  world.Fail(kP, 11, absl::StatusCode::kCancelled);
  world.Progress(kP, 12, "transfer_done");  // it was faster than the cancel
  EXPECT_EQ(world.core_.sizes(), kEmpty);
}

TEST(CoreSplitTest, UnconfirmedCancelsAreForgottenAfterALease) {
  World world = PairedWorld();
  world.Submit(10);
  world.Grant(kD, 10);
  world.SendTokens(kP, 10, 0, 1);
  world.Do(StopFound{10});
  EXPECT_TRUE(world.EndOf(10).ok());
  EXPECT_EQ(world.core_.sizes().attempts, 2);
  for (int i = 0; i < 11; ++i) {
    world.ReportPairs(kP, {World::Up(kD)});
    world.Heartbeat(kD, 100);
    world.Pass(absl::Seconds(1));
  }
  EXPECT_EQ(world.core_.sizes(), kEmpty);
}

TEST(CoreSplitTest, DeadlinesInEveryState) {
  World world = PairedWorld();
  for (uint64_t call = 10; call < 15; ++call) world.Submit(call, 8, kStart + absl::Seconds(1));
  world.Grant(kD, 11);
  world.Grant(kD, 12);
  world.SendTokens(kP, 12, 0, 1);
  world.Pass(absl::Seconds(1));
  for (uint64_t call = 10; call < 15; ++call) EXPECT_EQ(world.EndOf(call).code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(world.EndOf(11).message()), HasSubstr("it was prefilling"));
  EXPECT_THAT(std::string(world.EndOf(12).message()), HasSubstr("it was handing_off"));
  EXPECT_EQ(world.CancelsTo(kD), 4);
  EXPECT_EQ(world.CancelsTo(kP), 2);
}

TEST(CoreSplitTest, ALostPrefillWorker) {
  World world = PairedWorld(NoMoves());
  world.Join(3, 3, 100, pb::ROLE_PREFILL);
  for (uint64_t call = 10; call < 14; ++call) world.Submit(call);
  std::vector<uint64_t> on_p;  // those that P was chosen for: two of the four
  for (uint64_t call = 10; call < 14; ++call) {
    world.Grant(kD, call);
    if (world.prefilled_.at(call) == kP) on_p.push_back(call);
  }
  ASSERT_EQ(on_p.size(), 4u) << "the other one is not paired";
  world.SendTokens(kP, 11, 0, 1);
  world.SendTokens(kP, 12, 0, 1);
  world.Commit(kD, 12);
  world.SendTokens(kP, 13, 0, 1);
  world.ReportPairs(3, {World::Up(kD)});
  world.Do(LinkDown{world.links_[kP], absl::UnavailableError("reset")});
  EXPECT_EQ(world.EndOf(10).code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(world.EndOf(10).message()), HasSubstr("while the request was prefilling after 0 tokens"));
  EXPECT_EQ(world.CancelsTo(kD), 1);
  EXPECT_FALSE(world.Ended(11)) << "D may have it all";
  world.Commit(kD, 11);
  world.Fail(kD, 13, absl::StatusCode::kUnavailable, pb::TRANSFER_FAILED);
  EXPECT_EQ(world.EndOf(13).code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(world.EndOf(13).message()), HasSubstr("the worker was lost"));
  for (uint64_t call : {11, 12}) {
    world.SendTokens(kD, call, 1, 7);
    world.Finish(kD, call);
    EXPECT_TRUE(world.EndOf(call).ok());
  }
  world.Fail(kD, 10, absl::StatusCode::kCancelled);
  EXPECT_EQ(world.core_.sizes(), kEmpty);
}

TEST(CoreSplitTest, APrefillWorkerLostBeforeItWasAskedCostsNothing) {
  World world = PairedWorld();
  world.Submit(10);
  world.Join(3, 3, 100, pb::ROLE_PREFILL);
  world.ReportPairs(3, {World::Up(kD)});
  const pb::RequestKey first = world.keys_[10];
  world.Do(LinkDown{world.links_[kP], absl::UnavailableError("reset")});
  EXPECT_EQ(world.CancelsTo(kD), 1);
  ASSERT_EQ(world.keys_[10].attempt(), 2);
  pb::WorkerEvent late = world.About(10);
  *late.mutable_key() = first;
  late.mutable_lease_granted()->set_lease_id(77);
  world.Say(kD, late);
  EXPECT_TRUE(world.prefilled_.empty()) << "that lease is given back";
  world.Grant(kD, 10);
  EXPECT_EQ(world.prefilled_.at(10), 3u);
  late.mutable_failed();
  world.Say(kD, late);
  EXPECT_EQ(world.core_.sizes().closing, 0);
  EXPECT_FALSE(world.Ended(10));
}

TEST(CoreSplitTest, ALostDecodeWorker) {
  World world = PairedWorld(NoMoves());
  for (uint64_t call = 10; call < 14; ++call) world.Submit(call);
  for (uint64_t call = 11; call < 14; ++call) world.Grant(kD, call);
  world.SendTokens(kP, 12, 0, 1);
  world.SendTokens(kP, 13, 0, 1);
  world.Commit(kD, 13);
  world.Progress(kP, 13, "transfer_done");
  world.Do(WorkerLeaving{kD});
  for (uint64_t call = 10; call < 14; ++call) EXPECT_EQ(world.EndOf(call).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(world.CancelsTo(kP), 2);
  for (uint64_t call : {11, 12}) world.Fail(kP, call, absl::StatusCode::kCancelled);
  EXPECT_EQ(world.core_.sizes(), kEmpty);
}

TEST(CoreSplitTest, AnErrorOfEitherSideEndsTheOtherAtOnce) {
  World world = PairedWorld(NoMoves());
  world.Submit(10);
  world.Submit(11);
  world.Grant(kD, 10);
  world.Grant(kD, 11);
  world.Fail(kP, 10, absl::StatusCode::kInternal);
  EXPECT_EQ(world.EndOf(10).code(), absl::StatusCode::kInternal);
  EXPECT_EQ(world.CancelsTo(kD), 1);
  world.SendTokens(kP, 11, 0, 1);
  world.Fail(kD, 11, absl::StatusCode::kDataLoss, pb::CHECKSUM_MISMATCH);
  EXPECT_EQ(world.EndOf(11).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(world.CancelsTo(kP), 1);
  world.Fail(kD, 10, absl::StatusCode::kCancelled);
  world.Fail(kP, 11, absl::StatusCode::kCancelled);
  EXPECT_EQ(world.core_.sizes(), kEmpty);
}

TEST(CoreSplitTest, LeasesAreRenewedAtDOnly) {
  World world = PairedWorld();
  world.Submit(10);
  world.Submit(11);
  world.Grant(kD, 10);
  world.Grant(kD, 11);
  world.SendTokens(kP, 10, 0, 1);
  world.sent_.clear();
  world.Pass(absl::Seconds(3));
  ASSERT_EQ(world.sent_.size(), 1u);
  EXPECT_EQ(world.owners_.at(world.sent_[0].link), kD);
  EXPECT_THAT(world.sent_[0].message.renew().lease_ids(), ElementsAre(1010, 1011));
  world.Do(ClientCancel{10, absl::CancelledError("gone")});
  world.Pass(absl::Seconds(3));
  EXPECT_THAT(world.sent_.back().message.renew().lease_ids(), ElementsAre(1011));
}

TEST(CoreSplitTest, StateShowsBothPools) {
  World world = PairedWorld();
  world.Heartbeat(kD, 42);
  const pb::ClusterState state = world.core_.State();
  ASSERT_EQ(state.workers_size(), 2);
  EXPECT_EQ(state.workers(0).role(), pb::ROLE_PREFILL);
  EXPECT_EQ(state.workers(0).blocks_free(), 100);
  EXPECT_EQ(state.workers(1).role(), pb::ROLE_DECODE);
  EXPECT_EQ(state.workers(1).blocks_free(), 42);
  for (const auto& worker : state.workers()) EXPECT_EQ(worker.state(), pb::WORKER_STATE_ACTIVE);
}

TEST(CoreSplitTest, PlacementIsExplainedWithItsNumbers) {
  CoreOptions options;
  options.explain = true;
  World world = PairedWorld(options);
  world.Submit(10);
  EXPECT_THAT(
      world.notes_.back(),
      HasSubstr("place r10/10 on prefill 127.0.0.1:7001 and decode 127.0.0.1:7002: slo [prefill 127.0.0.1:7001: "
                "ttft 5.0 ms = (backlog 0 + prompt 5 - credit 0 of 0 cached) x 1.000 ms; blocks 100 of 100 free, "
                "needs 1; 0 requests][decode 127.0.0.1:7002: tpot 1.00 ms with 1 sequences; blocks 100 of 100 "
                "free, needs 1; 0 requests]"));
}

}  // namespace
}  // namespace sluice::router
