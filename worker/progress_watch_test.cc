// The watch alone, and on an engine loop whose engine hangs.
#include "worker/progress_watch.h"

#include <atomic>
#include <memory>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "worker/engine_loop.h"
#include "worker/error_info.h"
#include "worker/testing/computing_role.h"
#include "worker/testing/messages.h"
#include "worker/testing/scripted_engine.h"

namespace sluice::worker {
namespace {

constexpr absl::Duration kLimit = absl::Milliseconds(40);
constexpr absl::Duration kLong = absl::Seconds(20);

template <typename Condition>
bool Await(Condition condition) {
  for (const absl::Time end = absl::Now() + kLong; absl::Now() < end; absl::SleepFor(absl::Milliseconds(1))) {
    if (condition()) return true;
  }
  return false;
}

TEST(ProgressWatch, TellsEachChangeOnce) {
  std::atomic<int64_t> age_ms = 0;
  std::atomic<int> asked = 0, stuck = 0, well = 0;
  ProgressWatch watch(
      kLimit, [&] { return ++asked, absl::Milliseconds(age_ms.load()); }, [&](bool now) { ++(now ? stuck : well); });
  watch.Start();
  ASSERT_TRUE(Await([&] { return asked > 5; }));
  EXPECT_EQ(stuck, 0);
  age_ms = 41;
  ASSERT_TRUE(Await([&] { return stuck == 1; }));
  const int before = asked;
  ASSERT_TRUE(Await([&] { return asked > before + 5; }));
  EXPECT_EQ(stuck, 1);
  EXPECT_EQ(well, 0);
  age_ms = 0;
  ASSERT_TRUE(Await([&] { return well == 1; }));
  watch.Stop();
  EXPECT_EQ(stuck, 1);
}

// Steps wait for the test.
class HangingEngine final : public EnginePort {
 public:
  absl::Status Add(engine::EngineRequest request) override { return inner_.Add(std::move(request)); }
  bool Cancel(uint64_t id) override { return inner_.Cancel(id); }
  bool Park(uint64_t id) override { return inner_.Park(id); }
  absl::Status Activate(uint64_t id, std::span<const engine::FirstToken> firsts) override {
    return inner_.Activate(id, firsts);
  }
  int CachedTokensOf(uint64_t id) const override { return inner_.CachedTokensOf(id); }
  std::vector<int32_t> BlocksOf(uint64_t id) const override { return inner_.BlocksOf(id); }
  bool has_work() const override { return inner_.has_work(); }
  std::unique_ptr<engine::StepWork> Begin() override { return inner_.Begin(); }
  absl::Status Execute(engine::StepWork& step) override {
    while (hang) absl::SleepFor(absl::Milliseconds(1));
    return inner_.Execute(step);
  }
  std::vector<engine::TokenOutput> Commit(std::unique_ptr<engine::StepWork> step) override {
    return inner_.Commit(std::move(step));
  }
  const std::vector<engine::SequenceProgress>& progress() const override { return inner_.progress(); }
  const engine::PrefixCache* prefix_cache() const override { return nullptr; }
  engine::EngineStats stats() const override { return inner_.stats(); }

  std::atomic<bool> hang = false;

 private:
  ScriptedEngine inner_;
};

TEST(ProgressWatch, AnEngineThatHangsIsStuckAndAnIdleOneIsNot) {
  HangingEngine engine;
  RequestTable requests(absl::Seconds(30));
  ComputingRole role(engine, requests);
  WorkerCore core({/*incarnation=*/7, /*vocab=*/100}, engine, requests, role);
  ReportBoard board;
  EngineLoop loop({}, board);
  loop.Start(core, engine);
  ProgressWatch watch(
      kLimit, [&] { return loop.TurnAge(); }, [&](bool stuck) { board.SetStuck(stuck); });
  watch.Start();
  absl::SleepFor(3 * kLimit);
  EXPECT_FALSE(board.Take().stuck());
  EXPECT_EQ(loop.TurnAge(), absl::ZeroDuration()) << "it waits for work";

  engine.hang = true;
  struct Nobody final : StreamSink {
    void Send(v1::WorkerMessage) override {}
    void Close(const absl::Status&) override {}
    void Consumed(size_t) override {}
  };
  const StreamId stream = loop.OpenStream(std::make_shared<Nobody>());
  loop.Post(stream, Hello(7));
  loop.Post(stream, Reserve("a", 5, 3));
  EXPECT_TRUE(Await([&] { return board.Take().stuck(); }));
  engine.hang = false;
  EXPECT_TRUE(Await([&] { return !board.Take().stuck(); }));
  EXPECT_TRUE(Await([&] { return loop.TurnAge() == absl::ZeroDuration(); }));
  watch.Stop();
  EXPECT_TRUE(loop.Stop(MakeError(v1::DRAINING_WORKER, "stopping"), kLong));
}

}  // namespace
}  // namespace sluice::worker
