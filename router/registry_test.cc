#include "router/registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice::router {
namespace {

using ::testing::HasSubstr;

const absl::Time kStart = absl::UnixEpoch() + absl::Hours(1);

RegistryOptions Options() {
  return {.model_hash = "abcdef", .model = "tiny"};
}

pb::WorkerInfo Info(uint64_t incarnation, int port = 7001) {
  pb::WorkerInfo info;
  info.set_role(pb::ROLE_BOTH);
  info.set_incarnation(incarnation);
  info.set_model("tiny");
  info.mutable_fingerprint()->set_model_hash("abcdef");
  info.mutable_fingerprint()->set_block_size(16);
  info.mutable_fingerprint()->set_protocol_version(kProtocolVersion);
  info.mutable_work()->set_host("127.0.0.1");
  info.mutable_work()->set_port(port);
  info.set_blocks_total(100);
  return info;
}

pb::WorkerReport Report(uint64_t sequence) {
  pb::WorkerReport report;
  report.set_sequence(sequence);
  return report;
}

// Announced and linked, so ACTIVE.
void Join(Registry& registry, uint64_t incarnation, uint64_t session, uint64_t link, absl::Time now) {
  ASSERT_TRUE(registry.Announce(session, Info(incarnation, 7000 + int(incarnation)), now).ok());
  registry.Connecting(*registry.Find(incarnation), link);
  ASSERT_NE(registry.LinkUp(link), nullptr);
  ASSERT_EQ(registry.Find(incarnation)->state, pb::WORKER_STATE_ACTIVE);
}

TEST(RegistryTest, ActiveOnlyWithAnOpenWorkStream) {
  Registry registry(Options());
  ASSERT_TRUE(registry.Announce(1, Info(11), kStart).ok());
  EXPECT_EQ(registry.Find(11)->state, pb::WORKER_STATE_SUSPECT);
  EXPECT_EQ(registry.Find(11)->connect_at, kStart);
  registry.Connecting(*registry.Find(11), 5);
  EXPECT_EQ(registry.LinkUp(4), nullptr);
  ASSERT_NE(registry.LinkUp(5), nullptr);
  EXPECT_EQ(registry.Find(11)->state, pb::WORKER_STATE_ACTIVE);
}

TEST(RegistryTest, MissedHeartbeatsMakeSuspectThenGoneThenForgotten) {
  Registry registry(Options());
  Join(registry, 1, 1, 1, kStart);
  EXPECT_EQ(registry.NextDeadline(), kStart + absl::Seconds(3));
  EXPECT_TRUE(registry.Advance(kStart + absl::Milliseconds(2999)).empty());
  EXPECT_EQ(registry.Find(1)->state, pb::WORKER_STATE_ACTIVE);
  EXPECT_TRUE(registry.Advance(kStart + absl::Seconds(3)).empty());
  EXPECT_EQ(registry.Find(1)->state, pb::WORKER_STATE_SUSPECT);
  EXPECT_TRUE(registry.Heartbeat(1, Report(1), kStart + absl::Seconds(9)));
  EXPECT_EQ(registry.Find(1)->state, pb::WORKER_STATE_ACTIVE);
  EXPECT_TRUE(registry.Advance(kStart + absl::Seconds(9)).empty());
  EXPECT_TRUE(registry.Advance(registry.NextDeadline()).empty());
  EXPECT_EQ(registry.Find(1)->state, pb::WORKER_STATE_SUSPECT);
  const auto losses = registry.Advance(kStart + absl::Seconds(19));
  ASSERT_EQ(losses.size(), 1u);
  EXPECT_EQ(losses[0].incarnation, 1u);
  EXPECT_EQ(losses[0].link, 1u);
  EXPECT_THAT(losses[0].why, HasSubstr("no heartbeat for 10s"));
  EXPECT_EQ(registry.Find(1)->state, pb::WORKER_STATE_GONE);
  EXPECT_TRUE(registry.Advance(kStart + absl::Seconds(29)).empty());
  EXPECT_EQ(registry.Find(1), nullptr);
  EXPECT_EQ(registry.NextDeadline(), absl::InfiniteFuture());
}

TEST(RegistryTest, LostAnnounceStreamSuspectsAtOnceAndAnewOneHeals) {
  Registry registry(Options());
  Join(registry, 1, 1, 1, kStart);
  registry.AnnounceLost(99);  // of somebody else
  EXPECT_EQ(registry.Find(1)->state, pb::WORKER_STATE_ACTIVE);
  registry.AnnounceLost(1);
  EXPECT_EQ(registry.Find(1)->state, pb::WORKER_STATE_SUSPECT);
  ASSERT_TRUE(registry.Announce(2, Info(1, 7001), kStart + absl::Seconds(1)).ok());
  EXPECT_EQ(registry.Find(1)->state, pb::WORKER_STATE_ACTIVE);
  registry.AnnounceLost(1);  // the old stream's end comes late
  EXPECT_EQ(registry.Find(1)->state, pb::WORKER_STATE_ACTIVE);
}

TEST(RegistryTest, NewIncarnationOnTheSameAddressReplacesTheOld) {
  Registry registry(Options());
  Join(registry, 1, 1, 1, kStart);
  const auto losses = registry.Announce(2, Info(2, 7001), kStart + absl::Seconds(1));
  ASSERT_TRUE(losses.ok());
  ASSERT_EQ(losses->size(), 1u);
  EXPECT_EQ((*losses)[0].incarnation, 1u);
  EXPECT_THAT((*losses)[0].why, HasSubstr("restarted"));
  EXPECT_EQ(registry.Find(1)->state, pb::WORKER_STATE_GONE);
  EXPECT_EQ(registry.Find(2)->state, pb::WORKER_STATE_SUSPECT);
  EXPECT_EQ(registry.LinkDown(1, kStart), nullptr);  // its link is nobody's any more
}

TEST(RegistryTest, ARouterThatStoodStillListensBeforeItGivesUp) {
  Registry registry(Options());
  Join(registry, 1, 1, 1, kStart);
  Join(registry, 2, 2, 2, kStart);
  const absl::Time back = kStart + absl::Seconds(18);
  EXPECT_TRUE(registry.Advance(back).empty());
  EXPECT_EQ(registry.Find(1)->state, pb::WORKER_STATE_SUSPECT);
  pb::WorkerReport report;
  report.set_sequence(1);
  registry.Heartbeat(1, report, back + absl::Milliseconds(300));
  EXPECT_EQ(registry.NextDeadline(), back + absl::Seconds(1));
  const auto losses = registry.Advance(back + absl::Seconds(1));
  ASSERT_EQ(losses.size(), 1u) << "who is silent still goes";
  EXPECT_EQ(losses[0].incarnation, 2u);
  EXPECT_EQ(registry.Find(1)->state, pb::WORKER_STATE_ACTIVE);
}

// It stood still from before the end of the lease until a little after: that is no silence of the worker's either.
TEST(RegistryTest, AStandstillAroundTheEndOfALeaseIsNoSilence) {
  Registry registry(Options());
  Join(registry, 1, 1, 1, kStart);
  EXPECT_TRUE(registry.Advance(kStart + absl::Seconds(1)).empty());
  EXPECT_EQ(registry.NextDeadline(), kStart + absl::Seconds(3));
  const absl::Time again = kStart + absl::Milliseconds(10500);
  EXPECT_TRUE(registry.Advance(again).empty());
  EXPECT_TRUE(registry.Heartbeat(1, Report(1), again));
  EXPECT_TRUE(registry.Advance(again + absl::Seconds(1)).empty());
  EXPECT_EQ(registry.Find(1)->state, pb::WORKER_STATE_ACTIVE);
}

TEST(RegistryTest, AWorkerThatWasSilentForALeaseMayComeBack) {
  Registry registry(Options());
  Join(registry, 1, 1, 1, kStart);
  ASSERT_EQ(registry.Advance(kStart + absl::Seconds(10)).size(), 1u);
  ASSERT_TRUE(registry.Announce(2, Info(1, 7001), kStart + absl::Seconds(11)).ok());
  EXPECT_EQ(registry.Find(1)->state, pb::WORKER_STATE_SUSPECT);
  EXPECT_EQ(registry.Find(1)->connect_at, kStart + absl::Seconds(11));
}

TEST(RegistryTest, WhoWasToldToDrainIsTheSameWhenHeComesBack) {
  Registry registry(Options());
  Join(registry, 1, 1, 1, kStart);
  registry.Drain(*registry.Find(1), kStart);
  EXPECT_EQ(registry.Find(1)->state, pb::WORKER_STATE_DRAINING);
  ASSERT_EQ(registry.Advance(kStart + absl::Seconds(10)).size(), 1u);
  ASSERT_TRUE(registry.Announce(2, Info(1), kStart + absl::Seconds(11)).ok());
  registry.Connecting(*registry.Find(1), 2);
  registry.LinkUp(2);
  EXPECT_EQ(registry.Find(1)->state, pb::WORKER_STATE_DRAINING);
}

TEST(RegistryTest, LeavingIsGoneAtOnce) {
  Registry registry(Options());
  Join(registry, 1, 1, 1, kStart);
  ASSERT_EQ(registry.Leaving(1, kStart).size(), 1u);
  EXPECT_EQ(registry.Find(1)->state, pb::WORKER_STATE_GONE);
  EXPECT_TRUE(registry.Leaving(1, kStart).empty());
}

TEST(RegistryTest, ReportsSayDrainingAndLateOnesAreDropped) {
  Registry registry(Options());
  Join(registry, 1, 1, 1, kStart);
  pb::WorkerReport draining = Report(5);
  draining.set_draining(true);
  EXPECT_TRUE(registry.Heartbeat(1, draining, kStart));
  EXPECT_EQ(registry.Find(1)->state, pb::WORKER_STATE_DRAINING);
  EXPECT_FALSE(registry.Heartbeat(1, Report(5), kStart));
  EXPECT_FALSE(registry.Heartbeat(1, Report(4), kStart));
  EXPECT_EQ(registry.Find(1)->state, pb::WORKER_STATE_DRAINING);
  EXPECT_FALSE(registry.Heartbeat(2, Report(6), kStart));  // of no session
}

TEST(RegistryTest, BrokenLinkIsRetriedWithBackoff) {
  Registry registry(Options());
  Join(registry, 1, 1, 1, kStart);
  absl::Duration last;
  for (uint64_t link = 1; link < 10; ++link) {
    ASSERT_NE(registry.LinkDown(link, kStart), nullptr);
    EXPECT_EQ(registry.Find(1)->state, pb::WORKER_STATE_SUSPECT);
    const absl::Duration wait = registry.Find(1)->connect_at - kStart;
    EXPECT_GT(wait, absl::ZeroDuration());
    EXPECT_GE(wait, last);
    EXPECT_LE(wait, absl::Seconds(2));
    last = wait;
    registry.Connecting(*registry.Find(1), link + 1);
  }
  registry.LinkUp(10);
  EXPECT_EQ(registry.Find(1)->state, pb::WORKER_STATE_ACTIVE);
}

TEST(RegistryTest, WorkersThatDoNotFitAreRefusedWithTheReason) {
  Registry registry(Options());
  const auto refusal = [&](const pb::WorkerInfo& info) {
    const auto result = registry.Announce(1, info, kStart);
    EXPECT_EQ(result.status().code(), absl::StatusCode::kFailedPrecondition);
    return std::string(result.status().message());
  };
  pb::WorkerInfo info = Info(1);
  info.mutable_fingerprint()->set_model_hash("other");
  EXPECT_THAT(refusal(info), HasSubstr("start both with the same --model"));
  info = Info(1);
  info.set_role(pb::ROLE_UNSPECIFIED);
  EXPECT_THAT(refusal(info), HasSubstr("role 0 is not known"));
  info = Info(1);
  info.mutable_fingerprint()->set_protocol_version(9);
  EXPECT_THAT(refusal(info), HasSubstr("protocol 9"));
  info = Info(1);
  info.clear_work();
  EXPECT_THAT(refusal(info), HasSubstr("Work endpoint"));
  info = Info(0);
  EXPECT_THAT(refusal(info), HasSubstr("no incarnation"));
  EXPECT_TRUE(registry.workers().empty());
}

}  // namespace
}  // namespace sluice::router
