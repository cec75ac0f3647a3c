// The Work service with its loop over a real loopback connection, on a scripted engine.
#include "worker/work_service.h"

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "glog/logging.h"
#include "gmock/gmock.h"
#include "grpcpp/generic/generic_stub.h"
#include "gtest/gtest.h"
#include "worker/error_info.h"
#include "worker/listener.h"
#include "worker/testing/computing_role.h"
#include "worker/testing/messages.h"
#include "worker/testing/scripted_engine.h"
#include "worker/testing/test_router.h"

namespace sluice::worker {
namespace {

using testing::HasSubstr;

constexpr uint64_t kIncarnation = 42;

struct WorkerSetup {
  ScriptedEngineOptions engine;
  StreamLimits limits;
  absl::Duration lease = absl::Seconds(30);
};

// A worker without model and registration.
class TestWorker {
 public:
  explicit TestWorker(const WorkerSetup& setup = {})
      : engine_(setup.engine),
        requests_(setup.lease),
        role_(engine_, requests_),
        core_({kIncarnation, /*vocab=*/100}, engine_, requests_, role_),
        loop_(LoopOptions(setup), board_),
        service_(loop_, setup.limits) {
    auto listening = Listen("127.0.0.1", 0, {&service_});
    CHECK(listening.ok()) << listening.status();
    listening_ = *std::move(listening);
    loop_.Start(core_, engine_);
  }
  ~TestWorker() {
    Stop();
    listening_.server->Shutdown(std::chrono::system_clock::now());
  }

  bool Stop() { return loop_.Stop(MakeError(v1::DRAINING_WORKER, "stopping"), absl::Seconds(10)); }

  // The time it takes until every block is free again; InfiniteDuration if it takes over ten seconds.
  absl::Duration TimeToBaseline() {
    const absl::Time begin = absl::Now();
    while (board_.Take().blocks_free() != total_blocks()) {
      if (absl::Now() - begin > absl::Seconds(10)) return absl::InfiniteDuration();
      absl::SleepFor(absl::Milliseconds(2));
    }
    return absl::Now() - begin;
  }

  // That a new router gets its answer.
  bool StillServes() {
    TestRouter router(port());
    router.Send(Hello(kIncarnation, /*router=*/1000 + ++probes_));
    router.Send(Reserve("probe", 5, 3));
    return router.AwaitOf("probe", IsFinished) && router.TokensOf("probe").size() == 3;
  }

  int port() const { return listening_.port; }
  int64_t total_blocks() const { return total_blocks_; }
  ScriptedEngine& engine() { return engine_; }
  ReportBoard& board() { return board_; }
  absl::Notification& engine_error() { return engine_error_; }

 private:
  EngineLoopOptions LoopOptions(const WorkerSetup& setup) {
    EngineLoopOptions options;
    options.on_engine_error = [this](const absl::Status&) { engine_error_.Notify(); };
    total_blocks_ = setup.engine.num_blocks;
    return options;
  }

  int64_t total_blocks_ = 0;
  uint64_t probes_ = 0;
  absl::Notification engine_error_;
  ReportBoard board_;
  ScriptedEngine engine_;
  RequestTable requests_;
  ComputingRole role_;
  WorkerCore core_;
  EngineLoop loop_;
  WorkService service_;
  Listening listening_;
};

// Requests that run until something ends them: at one step a millisecond they would take ten seconds.
WorkerSetup Endless() {
  WorkerSetup setup;
  setup.engine = {.num_blocks = 4096, .context = 20000, .step_time = absl::Milliseconds(1)};
  return setup;
}
constexpr int kEndless = 10000;

TEST(WorkService, StreamsAnAnswer) {
  TestWorker worker;
  TestRouter router(worker.port());
  router.Send(Hello(kIncarnation));
  router.Send(Reserve("a", 5, 40));
  ASSERT_TRUE(router.AwaitOf("a", IsFinished));
  EXPECT_EQ(router.worker_incarnation(), kIncarnation);
  const std::vector<int32_t> tokens = router.TokensOf("a");
  ASSERT_EQ(tokens.size(), 40u);
  for (int i = 0; i < 40; ++i) EXPECT_EQ(tokens[i], ScriptedEngine::TokenAt({3}, i));
  EXPECT_LT(worker.TimeToBaseline(), absl::Seconds(2));
}

TEST(WorkService, ServesSeveralRoutersAtOnce) {
  TestWorker worker;
  std::vector<std::unique_ptr<TestRouter>> routers;
  for (uint64_t i = 0; i < 6; ++i) {
    routers.push_back(std::make_unique<TestRouter>(worker.port()));
    routers.back()->Send(Hello(kIncarnation, i + 1));
    for (const char* id : {"a", "b", "c"}) routers.back()->Send(Reserve(id, 5, 20));
  }
  for (auto& router : routers) {
    for (const char* id : {"a", "b", "c"}) {
      EXPECT_TRUE(router->AwaitOf(id, IsFinished));
      EXPECT_EQ(router->TokensOf(id).size(), 20u);
    }
  }
  EXPECT_LT(worker.TimeToBaseline(), absl::Seconds(2));
}

TEST(WorkService, CancelFreesAndAnswers) {
  TestWorker worker(Endless());
  TestRouter router(worker.port());
  router.Send(Hello(kIncarnation));
  router.Send(Reserve("a", 5, kEndless));
  ASSERT_TRUE(router.AwaitOf("a", IsTokens));
  router.Send(Cancel("a"));
  EXPECT_TRUE(router.AwaitOf("a", FailedWith(v1::CANCELLED_BY_CLIENT)));
  EXPECT_LT(worker.TimeToBaseline(), absl::Seconds(2));
}

TEST(WorkService, AVanishedRouterLeavesNothingBehind) {
  TestWorker worker(Endless());
  for (int i = 0; i < 20; ++i) {
    auto router = std::make_unique<TestRouter>(worker.port());
    router->Send(Hello(kIncarnation));
    for (const char* id : {"a", "b", "c"}) router->Send(Reserve(id, 5, kEndless));
    // Vanishes before the first answer, after it, and in the middle of the tokens.
    if (i % 3 == 1) {
      ASSERT_TRUE(router->AwaitOf("c", IsGranted));
    } else if (i % 3 == 2) {
      ASSERT_TRUE(router->AwaitOf("c", IsTokens));
    }
    router->Vanish();
    router.reset();
  }
  EXPECT_TRUE(worker.StillServes());
  EXPECT_LT(worker.TimeToBaseline(), absl::Seconds(2));
}

TEST(WorkService, AHalfClosedStreamIsOver) {
  TestWorker worker(Endless());
  TestRouter router(worker.port());
  router.Send(Hello(kIncarnation));
  router.Send(Reserve("a", 5, kEndless));
  ASSERT_TRUE(router.AwaitOf("a", IsTokens));
  router.HalfClose();
  EXPECT_TRUE(router.AwaitEnd().ok());
  EXPECT_LT(worker.TimeToBaseline(), absl::Seconds(2));
}

TEST(WorkService, GivesUpARouterThatNeverReads) {
  WorkerSetup setup = Endless();
  setup.limits.outbox_bytes = 200000;
  TestWorker worker(setup);
  TestRouter deaf(worker.port(), TestRouter::kNeverReads);
  deaf.Send(Hello(kIncarnation, 1));
  for (int i = 0; i < 6; ++i) {
    v1::RouterMessage reserve = Reserve(std::to_string(i), 5, kEndless);
    reserve.mutable_reserve()->mutable_sequence()->mutable_sampling()->set_logprobs(100);
    deaf.Send(reserve);
  }
  TestRouter other(worker.port());
  other.Send(Hello(kIncarnation, 2));
  other.Send(Reserve("other", 5, 2000));
  ASSERT_TRUE(other.AwaitOf("other", IsTokens));
  EXPECT_LT(worker.board().Take().blocks_free(), worker.total_blocks());
  EXPECT_TRUE(other.AwaitOf("other", IsFinished)) << "one deaf router must not hold up another";
  EXPECT_LT(worker.TimeToBaseline(), absl::Seconds(10)) << "the deaf router's requests live on";
}

TEST(WorkService, RefusesAStaleHello) {
  TestWorker worker;
  TestRouter router(worker.port());
  router.Send(Hello(kIncarnation + 1));
  const grpc::Status status = router.AwaitEnd();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(), HasSubstr("STALE_INCARNATION"));
  EXPECT_TRUE(worker.StillServes());
}

TEST(WorkService, SurvivesGarbageOrder) {
  TestWorker worker;
  for (const v1::RouterMessage& first :
       {Reserve("a", 5, 3), Cancel("a"), Renew({1}), Prefill("a"), Drain(), v1::RouterMessage()}) {
    TestRouter router(worker.port());
    router.Send(first);
    EXPECT_EQ(router.AwaitEnd().error_code(), grpc::StatusCode::FAILED_PRECONDITION) << first.ShortDebugString();
  }
  TestRouter router(worker.port());
  router.Send(Hello(kIncarnation));
  router.Send(Cancel("a"));
  router.Send(Release("a", 5));
  router.Send(Renew({5}));
  router.Send(v1::RouterMessage());
  router.Send(Prefill("p"));
  EXPECT_TRUE(router.AwaitOf("p", IsRefused));
  router.Send(Hello(kIncarnation));
  EXPECT_EQ(router.AwaitEnd().error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_TRUE(worker.StillServes());
}

// Bytes that are no RouterMessage.
TEST(WorkService, SurvivesGarbageBytes) {
  TestWorker worker;
  grpc::GenericStub stub(
      grpc::CreateChannel(absl::StrCat("127.0.0.1:", worker.port()), grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  grpc::CompletionQueue queue;
  void* tag = nullptr;
  bool ok = false;
  auto call = stub.PrepareCall(&context, "/sluice.v1.Worker/Work", &queue);
  call->StartCall(&context);
  queue.Next(&tag, &ok);
  const grpc::Slice slice(std::string(100, '\xff'));
  call->Write(grpc::ByteBuffer(&slice, 1), &context);
  queue.Next(&tag, &ok);
  grpc::Status status;
  call->Finish(&status, &context);
  queue.Next(&tag, &ok);
  EXPECT_TRUE(worker.StillServes());
}

TEST(WorkService, ALeaseExpiresByItself) {
  WorkerSetup setup = Endless();
  setup.lease = absl::Milliseconds(200);
  TestWorker worker(setup);
  TestRouter router(worker.port());
  router.Send(Hello(kIncarnation));
  router.Send(Reserve("a", 5, kEndless));
  EXPECT_TRUE(router.AwaitOf("a", FailedWith(v1::LEASE_EXPIRED)));
  EXPECT_LT(worker.TimeToBaseline(), absl::Seconds(2));
}

TEST(WorkService, ARenewedLeaseOutlivesItsTerm) {
  WorkerSetup setup;
  setup.engine = {.num_blocks = 256, .context = 4000, .step_time = absl::Milliseconds(1)};
  setup.lease = absl::Seconds(1);
  TestWorker worker(setup);
  TestRouter router(worker.port());
  router.Send(Hello(kIncarnation));
  router.Send(Reserve("a", 5, 1500));
  ASSERT_TRUE(router.AwaitOf("a", IsGranted));
  const uint64_t lease = router.events()[0].lease_granted().lease_id();
  absl::Notification over;
  std::thread renewer([&] {
    while (!over.WaitForNotificationWithTimeout(absl::Milliseconds(50))) router.Send(Renew({lease}));
  });
  EXPECT_TRUE(router.AwaitOf("a", IsFinished));
  over.Notify();
  renewer.join();
}

TEST(WorkService, ADeadlineEndsARequest) {
  TestWorker worker(Endless());
  TestRouter router(worker.port());
  router.Send(Hello(kIncarnation));
  router.Send(Reserve("a", 5, kEndless, /*remaining_ms=*/150));
  EXPECT_TRUE(router.AwaitOf("a", FailedWith(v1::DEADLINE)));
  EXPECT_LT(worker.TimeToBaseline(), absl::Seconds(2));
}

TEST(WorkService, ReadsNoFasterThanTheLoopTakes) {
  WorkerSetup setup;
  setup.limits.unconsumed_messages = 4;
  TestWorker worker(setup);
  TestRouter router(worker.port());
  router.Send(Hello(kIncarnation));
  constexpr int kFlood = 3000;
  for (int i = 0; i < kFlood; ++i) ASSERT_TRUE(router.Send(Reserve("", 5, 3)));
  router.Send(Reserve("last", 5, 3));
  ASSERT_TRUE(router.AwaitOf("last", IsFinished));
  int refused = 0;
  for (const v1::WorkerEvent& event : router.events()) refused += event.has_refused();
  EXPECT_EQ(refused, kFlood);
}

TEST(WorkService, StopTellsEveryRequestAndEndsTheStreams) {
  TestWorker worker(Endless());
  TestRouter router(worker.port());
  router.Send(Hello(kIncarnation));
  router.Send(Reserve("a", 5, kEndless));
  ASSERT_TRUE(router.AwaitOf("a", IsTokens));
  EXPECT_TRUE(worker.Stop());
  EXPECT_TRUE(router.AwaitOf("a", FailedWith(v1::DRAINING_WORKER)));
  EXPECT_EQ(router.AwaitEnd().error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST(WorkService, AnEngineErrorEndsTheStreamsAndIsReported) {
  TestWorker worker(Endless());
  TestRouter router(worker.port());
  router.Send(Hello(kIncarnation));
  router.Send(Reserve("a", 5, kEndless));
  ASSERT_TRUE(router.AwaitOf("a", IsTokens));
  worker.engine().fail_next_step = true;
  EXPECT_EQ(router.AwaitEnd().error_code(), grpc::StatusCode::INTERNAL);
  EXPECT_TRUE(worker.engine_error().WaitForNotificationWithTimeout(absl::Seconds(10)));
  EXPECT_TRUE(router.AwaitOf("a", FailedWith(v1::INTERNAL_ERROR)));
}

TEST(Listener, SaysWhyAPortCannotBeHad) {
  TestWorker worker;
  const auto second = Listen("127.0.0.1", worker.port(), {});
  ASSERT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr("in use"));
  EXPECT_THAT(std::string(second.status().message()), HasSubstr("--port"));
}

}  // namespace
}  // namespace sluice::worker
