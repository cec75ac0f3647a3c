#include "router/core.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "router/testing/core_world.h"

namespace sluice::router {
namespace {

using ::testing::HasSubstr;

constexpr RouterCore::Sizes kEmpty{};

TEST(CoreTest, AnswersARequest) {
  World world;
  world.Join(1, 1);
  EXPECT_TRUE(world.pool_.serving);
  EXPECT_EQ(world.pool_.token_capacity, 1600);
  world.Submit(10);
  ASSERT_TRUE(world.Reserved(10));
  world.Grant(1, 10);
  world.SendTokens(1, 10, 0, 3);
  world.SendTokens(1, 10, 3, 5);
  world.Finish(1, 10);
  EXPECT_TRUE(world.EndOf(10).ok());
  EXPECT_EQ(world.tokens_[10], 8);
  EXPECT_EQ(world.core_.sizes(), kEmpty);
}

TEST(CoreTest, NobodyAliveIsRefusedAtOnceAndAlsoWhenTheLastOneGoes) {
  World world(NoMoves());
  world.Submit(10);
  EXPECT_EQ(world.EndOf(10).code(), absl::StatusCode::kUnavailable);
  world.Join(1, 1);
  for (uint64_t call = 20; call < 30; ++call) world.Submit(call);  // 4 are placed, 6 wait
  EXPECT_EQ(world.core_.sizes().queued, 6);
  world.Do(WorkerLeaving{1});
  EXPECT_FALSE(world.pool_.serving);
  for (uint64_t call = 20; call < 30; ++call) EXPECT_EQ(world.EndOf(call).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(world.core_.sizes(), kEmpty);
}

TEST(CoreTest, ASuspectGetsNoNewWorkButKeepsWhatItHas) {
  World world;
  world.Join(1, 1);
  world.Submit(10);
  world.Grant(1, 10);
  world.Do(AnnounceLost{1});
  EXPECT_FALSE(world.pool_.serving);
  world.Submit(11);
  EXPECT_FALSE(world.Reserved(11));
  EXPECT_FALSE(world.Ended(11)) << "it may be back soon";
  world.SendTokens(1, 10, 0, 8);
  world.Finish(1, 10);
  EXPECT_TRUE(world.EndOf(10).ok());
  world.Do(WorkerAnnounced{2, Info(1, 7001)});
  EXPECT_TRUE(world.Reserved(11));
}

TEST(CoreTest, AProcessThatDiedIsNotWaitedFor) {
  for (const bool link_first : {true, false}) {
    World world(NoMoves());
    world.Join(1, 1);
    for (uint64_t call = 10; call < 16; ++call) world.Submit(call);  // 4 are placed, 2 wait
    world.Do(link_first ? Event(LinkDown{world.links_[1], absl::UnavailableError("reset")}) : Event(AnnounceLost{1}));
    EXPECT_FALSE(world.Ended(15)) << "one stream alone may come back";
    world.Do(link_first ? Event(AnnounceLost{1}) : Event(LinkDown{world.links_[1], absl::UnavailableError("reset")}));
    for (uint64_t call = 10; call < 16; ++call) EXPECT_EQ(world.EndOf(call).code(), absl::StatusCode::kUnavailable);
    world.Submit(20);
    EXPECT_EQ(world.EndOf(20).code(), absl::StatusCode::kUnavailable);
    EXPECT_EQ(world.core_.State().workers(0).state(), pb::WORKER_STATE_SUSPECT);
    world.Do(WorkerAnnounced{2, Info(1, 7001)});  // it lives after all
    world.Submit(21);
    EXPECT_FALSE(world.Ended(21));
  }
}

TEST(CoreTest, AWorkerThatIsStuckGetsNoNewWork) {
  World world;
  world.Join(1, 1);
  world.Submit(10);
  world.Grant(1, 10);
  pb::WorkerReport report;
  report.set_sequence(++world.report_sequence_);
  report.set_blocks_free(90);
  report.set_stuck(true);
  world.Do(WorkerHeartbeat{1, report});
  EXPECT_FALSE(world.pool_.serving) << "not ready";
  EXPECT_THAT(world.notes_.back(), HasSubstr("is stuck"));
  world.Submit(11);
  EXPECT_FALSE(world.Reserved(11));
  EXPECT_FALSE(world.Ended(11)) << "it may come forward";
  EXPECT_FALSE(world.Ended(10));
  report.set_sequence(++world.report_sequence_);
  report.set_stuck(false);
  world.Do(WorkerHeartbeat{1, report});
  EXPECT_TRUE(world.pool_.serving);
  EXPECT_TRUE(world.Reserved(11));
}

TEST(CoreTest, SilenceForALeaseEndsItsRequests) {
  World world(NoMoves());
  world.Join(1, 1);
  world.Submit(10);
  world.Grant(1, 10);
  world.SendTokens(1, 10, 0, 3);
  world.Pass(absl::Seconds(11));
  EXPECT_EQ(world.EndOf(10).code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(world.EndOf(10).message()), HasSubstr("after 3 tokens: both 127.0.0.1:7001: no heartbeat"));
  EXPECT_THAT(world.disconnected_, ::testing::ElementsAre(world.links_[1]));
  EXPECT_EQ(world.core_.sizes(), kEmpty);
}

TEST(CoreTest, ARestartOnTheSameAddressIsANewWorker) {
  World world(NoMoves());
  world.Join(1, 1);
  world.Submit(10);
  world.Grant(1, 10);
  const uint64_t old_link = world.links_[1];
  world.Do(WorkerAnnounced{2, Info(2, 7001)});
  EXPECT_THAT(std::string(world.EndOf(10).message()), HasSubstr("restarted"));
  pb::WorkerHello hello;
  hello.set_worker_incarnation(2);
  world.Do(LinkUp{world.links_[2], hello});
  for (uint64_t call = 20; call < 24; ++call) world.Submit(call);
  for (uint64_t call = 20; call < 24; ++call) EXPECT_EQ(world.WorkerOf(call), 2u);
  world.Do(LinkDown{old_link, absl::UnavailableError("late")});  // of nobody any more
  EXPECT_FALSE(world.Ended(20));
}

TEST(CoreTest, AnotherIncarnationBehindTheAddressIsNotTheWorker) {
  World world;
  world.Do(WorkerAnnounced{1, Info(1, 7001)});
  pb::WorkerHello hello;
  hello.set_worker_incarnation(99);
  world.Do(LinkUp{world.links_[1], hello});
  EXPECT_FALSE(world.pool_.serving);
  EXPECT_EQ(world.disconnected_.size(), 1u);
}

TEST(CoreTest, ABrokenLinkFailsItsRequestsAndIsOpenedAgain) {
  World world(NoMoves());
  world.Join(1, 1);
  world.Submit(10);
  world.Submit(11);
  world.Grant(1, 10);
  const uint64_t link = world.links_[1];
  world.Do(LinkDown{link, absl::UnavailableError("reset")});
  EXPECT_EQ(world.EndOf(10).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(world.EndOf(11).code(), absl::StatusCode::kUnavailable);
  world.Submit(12);
  EXPECT_FALSE(world.Reserved(12));
  world.Pass(absl::Milliseconds(200));
  ASSERT_NE(world.links_[1], link);
  pb::WorkerHello hello;
  hello.set_worker_incarnation(1);
  world.Do(LinkUp{world.links_[1], hello});
  EXPECT_TRUE(world.Reserved(12));
}

TEST(CoreTest, CancelInEveryState) {
  World world;
  world.Join(1, 1);
  for (uint64_t call = 10; call < 15; ++call) world.Submit(call);
  world.Grant(1, 11);
  world.Grant(1, 12);
  world.SendTokens(1, 12, 0, 2);
  ASSERT_FALSE(world.Reserved(14));
  for (uint64_t call : {14, 10, 11, 12, 13}) {
    world.Do(ClientCancel{call, absl::CancelledError("gone")});
    EXPECT_EQ(world.EndOf(call).code(), absl::StatusCode::kCancelled);
    world.Do(ClientCancel{call, absl::CancelledError("gone")});
  }
  EXPECT_EQ(world.Cancels(), 4) << "the queued one touches no worker";
  EXPECT_EQ(world.core_.sizes().closing, 4);
  world.SendTokens(1, 12, 2, 1);  // on its way when the cancel went out
  world.Grant(1, 10);
  for (uint64_t call : {10, 11, 12, 13}) world.Fail(1, call, absl::StatusCode::kCancelled);
  EXPECT_EQ(world.core_.sizes(), kEmpty);
}

TEST(CoreTest, AnUnconfirmedCancelIsForgottenAfterALease) {
  World world;
  world.Join(1, 1);
  world.Submit(10);
  world.Grant(1, 10);
  world.Do(ClientCancel{10, absl::CancelledError("gone")});
  EXPECT_EQ(world.core_.sizes().attempts, 1);
  for (int i = 0; i < 10; ++i) {
    world.Heartbeat(1, 99);
    world.Pass(absl::Seconds(1));
  }
  EXPECT_EQ(world.core_.sizes(), kEmpty);
}

TEST(CoreTest, DeadlinesInEveryState) {
  World world;
  world.Join(1, 1);
  for (uint64_t call = 10; call < 15; ++call) world.Submit(call, 8, kStart + absl::Seconds(1));
  world.Grant(1, 11);
  world.SendTokens(1, 11, 0, 1);
  world.Pass(absl::Milliseconds(999));
  EXPECT_TRUE(world.ends_.empty());
  world.Pass(absl::Milliseconds(1));
  for (uint64_t call = 10; call < 15; ++call) EXPECT_EQ(world.EndOf(call).code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(world.Cancels(), 4);
}

TEST(CoreTest, ARefusalGoesElsewhereOrWaitsForAReport) {
  World world;
  world.Join(1, 1);
  world.Join(2, 2);
  world.Submit(10);
  const uint64_t first = world.WorkerOf(10);
  const uint64_t second = 3 - first;
  world.Refuse(first, 10, pb::NO_BLOCKS);
  ASSERT_EQ(world.WorkerOf(10), second);
  world.Refuse(second, 10, pb::NO_BLOCKS);
  EXPECT_EQ(world.core_.sizes().queued, 1);
  world.Submit(11);
  EXPECT_FALSE(world.Reserved(11)) << "the head goes first";
  world.sent_.clear();
  world.Heartbeat(first, 100);
  ASSERT_EQ(world.sent_.size(), 2u);
  EXPECT_EQ(world.sent_[0].message.reserve().key().request_id(), "r10/10") << "back at the queue's head";
  EXPECT_EQ(world.WorkerOf(10), first);
  EXPECT_EQ(world.keys_[10].attempt(), 3);
  EXPECT_TRUE(world.Reserved(11));
}

TEST(CoreTest, NeverFitsIsTheClientsErrorOnceNobodyCould) {
  World world;
  world.Join(1, 1);
  world.Join(2, 2);
  world.Submit(10);
  const uint64_t first = world.WorkerOf(10);
  world.Refuse(first, 10, pb::NEVER_FITS);
  ASSERT_EQ(world.WorkerOf(10), 3 - first);
  world.Refuse(3 - first, 10, pb::NEVER_FITS);
  EXPECT_EQ(world.EndOf(10).code(), absl::StatusCode::kInvalidArgument);
  world.Submit(11, 2000);
  EXPECT_EQ(world.EndOf(11).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(world.EndOf(11).message()), HasSubstr("sampling.max_tokens: prompt (5 tokens)"));
  EXPECT_EQ(world.core_.sizes(), kEmpty);
}

TEST(CoreTest, TheQueueIsBoundedAndOrdered) {
  CoreOptions options;
  options.queue.limit = 3;
  World world(options);
  world.Join(1, 1);
  for (uint64_t call = 10; call < 14; ++call) world.Submit(call);  // the worker's four rows
  world.Submit(14);
  world.Submit(15, 8, absl::InfiniteFuture(), -1);
  world.Submit(16);
  world.Submit(17);
  EXPECT_EQ(world.EndOf(17).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_GT(world.ends_[17].retry_after, absl::ZeroDuration());
  world.Grant(1, 10);
  world.SendTokens(1, 10, 0, 8);
  world.Finish(1, 10);
  EXPECT_TRUE(world.Reserved(15)) << "by priority";
  EXPECT_FALSE(world.Reserved(14));
}

TEST(CoreTest, LeasesAreRenewedInOneBatchAThirdOfTheLease) {
  World world;
  world.Join(1, 1);
  world.Submit(10);
  world.Submit(11);
  world.Submit(12);
  world.Grant(1, 10);
  world.Grant(1, 11);
  world.sent_.clear();
  world.Pass(absl::Milliseconds(2999));
  EXPECT_TRUE(world.sent_.empty());
  world.Pass(absl::Milliseconds(1));
  ASSERT_EQ(world.sent_.size(), 1u);
  EXPECT_THAT(world.sent_[0].message.renew().lease_ids(), ::testing::ElementsAre(1010, 1011));
  world.SendTokens(1, 10, 0, 8);
  world.Finish(1, 10);
  world.Heartbeat(1, 90);
  world.Pass(absl::Seconds(3));
  EXPECT_THAT(world.sent_.back().message.renew().lease_ids(), ::testing::ElementsAre(1011));
}

TEST(CoreTest, AStopStringFreesTheWorker) {
  World world;
  world.Join(1, 1);
  world.Submit(10);
  world.Grant(1, 10);
  world.SendTokens(1, 10, 0, 3);
  world.Do(StopFound{10});
  EXPECT_TRUE(world.EndOf(10).ok());
  EXPECT_EQ(world.Cancels(), 1);
  world.Finish(1, 10);  // it was faster than the cancel
  EXPECT_EQ(world.core_.sizes(), kEmpty);
}

TEST(CoreTest, DrainingFinishesWhatItHas) {
  World world;
  world.Join(1, 1);
  world.Submit(10);
  world.Grant(1, 10);
  pb::WorkerReport report;
  report.set_sequence(1);
  report.set_draining(true);
  world.Do(WorkerHeartbeat{1, report});
  EXPECT_FALSE(world.pool_.serving);
  world.Submit(11);
  EXPECT_EQ(world.EndOf(11).code(), absl::StatusCode::kUnavailable);
  world.SendTokens(1, 10, 0, 8);
  world.Finish(1, 10);
  EXPECT_TRUE(world.EndOf(10).ok());
}

TEST(CoreTest, ShutdownEndsEverything) {
  World world;
  world.Join(1, 1);
  for (uint64_t call = 10; call < 16; ++call) world.Submit(call);
  world.Grant(1, 10);
  world.Do(Shutdown{});
  for (uint64_t call = 10; call < 16; ++call) {
    EXPECT_EQ(world.EndOf(call), absl::UnavailableError("router is shutting down"));
  }
  world.Submit(20);
  EXPECT_EQ(world.EndOf(20), absl::UnavailableError("router is shutting down"));
  EXPECT_EQ(world.disconnected_.size(), 1u);
  EXPECT_TRUE(world.closed_.contains(1));
}

TEST(CoreTest, AForeignModelIsRefusedWithoutHarm) {
  World world;
  pb::WorkerInfo info = Info(1, 7001);
  info.mutable_fingerprint()->set_model_hash("zzz");
  world.Do(WorkerAnnounced{1, info});
  EXPECT_THAT(std::string(world.closed_.at(1).message()), HasSubstr("INCOMPATIBLE"));
  EXPECT_TRUE(world.links_.empty());
  EXPECT_EQ(world.core_.State().workers_size(), 0);
}

TEST(CoreTest, StateShowsWorkersAndCounts) {
  World world;
  world.Join(1, 1);
  for (uint64_t call = 10; call < 16; ++call) world.Submit(call);
  world.Heartbeat(1, 42);
  const pb::ClusterState state = world.core_.State();
  ASSERT_EQ(state.workers_size(), 1);
  EXPECT_EQ(state.workers(0).state(), pb::WORKER_STATE_ACTIVE);
  EXPECT_EQ(state.workers(0).blocks_free(), 42);
  EXPECT_EQ(state.queued(), 2);
  EXPECT_EQ(state.running(), 4);
  EXPECT_EQ(state.model(), "tiny");
}

}  // namespace
}  // namespace sluice::router
