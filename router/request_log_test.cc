#include "router/request_log.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "router/testing/core_world.h"

namespace sluice::router {
namespace {

pb::RequestSummary Summary(int i, int entries = 0) {
  pb::RequestSummary summary;
  summary.set_request_id(absl::StrCat("r", i));
  for (int e = 0; e < entries; ++e) summary.mutable_timing()->add_timeline()->set_amount(e);
  return summary;
}

TEST(RequestLog, KeepsTheLastOnesNewestFirst) {
  RequestLog log(3);
  for (int i = 0; i < 8; ++i) {
    log.Add(Summary(i), kStart + absl::Seconds(i));
    EXPECT_EQ(log.size(), std::min(size_t(i) + 1, size_t{3}));
    pb::RequestList list;
    log.AppendTo(list, 10, kStart + absl::Seconds(10));
    for (int k = 0; k < list.requests_size(); ++k) {
      EXPECT_EQ(list.requests(k).request_id(), absl::StrCat("r", i - k));
      EXPECT_DOUBLE_EQ(list.requests(k).ended_ms(), 1000 * (10 - i + k));
    }
  }
  pb::RequestList list;
  *list.add_requests() = Summary(99);  // of those that run
  log.AppendTo(list, 2, kStart + absl::Seconds(7));
  ASSERT_EQ(list.requests_size(), 2);
  EXPECT_EQ(list.requests(1).request_id(), "r7");
  EXPECT_GT(list.requests(1).ended_ms(), 0) << "0 would say that it runs";
}

TEST(RequestLog, ALongTimelineLosesItsMiddle) {
  RequestLog log(1);
  log.Add(Summary(0, 1000), kStart);
  pb::RequestList list;
  log.AppendTo(list, 1, kStart);
  const auto& timeline = list.requests(0).timing().timeline();
  ASSERT_EQ(timeline.size(), RequestLog::kFirstEntries + RequestLog::kLastEntries);
  EXPECT_EQ(timeline[RequestLog::kFirstEntries - 1].amount(), RequestLog::kFirstEntries - 1);
  EXPECT_EQ(timeline[RequestLog::kFirstEntries].amount(), 1000 - RequestLog::kLastEntries);
}

TEST(RequestLog, NoneIsKept) {
  RequestLog log(0);
  log.Add(Summary(0), kStart);
  EXPECT_EQ(log.size(), 0u);
}

// ---- what the core makes of it ----

TEST(CoreRequests, RunningThenEnded) {
  World world;
  world.Join(1, 10, 100, pb::ROLE_BOTH);
  world.Submit(1);
  world.Grant(1, 1);
  world.SendTokens(1, 1, 0, 1);
  world.now_ += absl::Milliseconds(30);
  world.SendTokens(1, 1, 1, 3);
  world.now_ += absl::Milliseconds(70);
  pb::RequestList list = world.core_.Requests(10, world.now_);
  ASSERT_EQ(list.requests_size(), 1);
  pb::RequestSummary summary = list.requests(0);
  EXPECT_EQ(summary.request_id(), "r1");
  EXPECT_EQ(summary.state(), "decoding");
  EXPECT_EQ(summary.prompt_tokens(), 5);
  EXPECT_EQ(summary.completion_tokens(), 4);
  EXPECT_EQ(summary.decode_worker(), "both 127.0.0.1:7001");
  EXPECT_EQ(summary.prefill_worker(), "");
  EXPECT_DOUBLE_EQ(summary.age_ms(), 100);
  EXPECT_DOUBLE_EQ(summary.ended_ms(), 0);
  EXPECT_DOUBLE_EQ(summary.timing().tpot_ms(), 0);  // TTFT is 0 here: nothing passed before the first token
  world.SendTokens(1, 1, 4, 4);
  world.Finish(1, 1);
  world.Submit(2);
  world.Do(ClientCancel{2, absl::CancelledError("the client is gone")});
  world.Submit(3);
  world.now_ += absl::Seconds(1);
  list = world.core_.Requests(10, world.now_);
  ASSERT_EQ(list.requests_size(), 3);
  EXPECT_EQ(list.requests(0).request_id(), "r3");
  EXPECT_EQ(list.requests(0).state(), "reserved");
  EXPECT_EQ(list.requests(1).request_id(), "r2");
  EXPECT_EQ(list.requests(1).state(), "cancelled");
  EXPECT_EQ(list.requests(1).error(), "the client is gone");
  summary = list.requests(2);
  EXPECT_EQ(summary.state(), "done");
  EXPECT_EQ(summary.completion_tokens(), 8);
  EXPECT_DOUBLE_EQ(summary.age_ms(), 100) << "until it ended";
  EXPECT_DOUBLE_EQ(summary.ended_ms(), 1000);
  EXPECT_EQ(summary.timing().timeline(0).name(), "queued");
  EXPECT_EQ(world.core_.Requests(2, world.now_).requests_size(), 2);
  EXPECT_EQ(world.core_.Requests(0, world.now_).requests_size(), 0);
}

TEST(CoreRequests, TimesOfARequest) {
  World world;
  world.Join(1, 10, 100, pb::ROLE_BOTH);
  world.Submit(1);
  world.now_ += absl::Milliseconds(10);
  world.Grant(1, 1);
  world.now_ += absl::Milliseconds(10);
  world.SendTokens(1, 1, 0, 1);
  world.now_ += absl::Milliseconds(60);
  world.SendTokens(1, 1, 1, 3);
  const pb::RequestList list = world.core_.Requests(10, world.now_);
  const pb::Timing& timing = list.requests(0).timing();
  EXPECT_DOUBLE_EQ(timing.queue_ms(), 10);
  EXPECT_DOUBLE_EQ(timing.ttft_ms(), 20);
  EXPECT_DOUBLE_EQ(timing.tpot_ms(), 20);
}

TEST(CoreRequests, WhoWasTurnedAwayIsThereToo) {
  World world;
  world.Submit(1);  // no worker
  const pb::RequestList list = world.core_.Requests(10, world.now_);
  ASSERT_EQ(list.requests_size(), 1);
  EXPECT_EQ(list.requests(0).state(), "failed");
  EXPECT_EQ(world.ends_.at(1).refusal, RefusalReason::kNoWorker);
}

TEST(CoreRequests, LostWorkersAndMovesAreCounted) {
  World world;
  world.Join(1, 10);
  world.Join(2, 11);
  world.Submit(1);
  const uint64_t first =
      world.core_.Requests(1, world.now_).requests(0).decode_worker() == "both 127.0.0.1:7001" ? 1 : 2;
  world.Grant(first, 1);
  world.Do(AnnounceLost{first == 1 ? 10u : 11u});
  world.Pass(absl::Seconds(11));
  EXPECT_EQ(world.core_.counters().workers_lost[pb::ROLE_BOTH], 2u) << "the other one was not heard either";
  EXPECT_EQ(world.core_.counters().moves, 1u);
  world.Join(3, 12);
  world.Do(WorkerLeaving{12});
  EXPECT_EQ(world.core_.counters().workers_lost[pb::ROLE_BOTH], 2u) << "one that says goodbye is not lost";
}

}  // namespace
}  // namespace sluice::router
