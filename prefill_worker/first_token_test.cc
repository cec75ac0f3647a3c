// The first token never waits for the transfer: the order in which the engine thread of a prefill worker speaks.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "prefill_worker/prefill_role.h"
#include "worker/engine_loop.h"
#include "worker/error_info.h"
#include "worker/testing/messages.h"
#include "worker/testing/scripted_engine.h"

namespace sluice::prefill_worker {
namespace {

using testing::ElementsAre;

constexpr uint64_t kIncarnation = 77;
constexpr uint64_t kDecode = 42;
constexpr kernels::KvLayout kLayout{6, 2, 8, 16, kernels::KvDType::kF32};
constexpr absl::Duration kLong = absl::Seconds(20);

// What the engine thread said, to the router and to the transfer, in its order.
struct Said {
  std::vector<std::string> words;  // of the engine thread; afterwards of the test
  absl::Notification handed_over;
};

struct Router final : worker::StreamSink {
  explicit Router(Said& s) : said(s) {}
  void Send(v1::WorkerMessage message) override {
    ++messages;
    for (const v1::WorkerEvent& event : message.events()) {
      if (event.has_tokens()) said.words.push_back(absl::StrCat("token of ", event.key().request_id()));
    }
  }
  void Close(const absl::Status&) override {}
  void Consumed(size_t) override {}
  Said& said;
  int messages = 0;
};

struct Transfer final : KvOutbox {
  Transfer(Said& s, int n) : said(s), commits_left(n) {}
  void Open(TransferId, v1::RequestKey, std::vector<int32_t>) override {}
  void AddBlocks(TransferId id, int begin, int end, LayerRange) override {
    said.words.push_back(absl::StrCat("blocks ", begin, "-", end, " of ", id.lease_id));
  }
  void Commit(TransferId id, v1::Commit) override {
    said.words.push_back(absl::StrCat("commit of ", id.lease_id));
    if (--commits_left == 0) said.handed_over.Notify();
  }
  void Cancel(TransferId, absl::Status) override {}
  Said& said;
  int commits_left;
};

v1::RouterMessage Prefill(const std::string& id, int prompt, uint64_t lease) {
  v1::RouterMessage message = worker::Prefill(id);
  *message.mutable_prefill()->mutable_sequence() = worker::Spec(prompt, /*max_tokens=*/9);
  message.mutable_prefill()->mutable_lease()->set_decode_incarnation(kDecode);
  message.mutable_prefill()->mutable_lease()->set_lease_id(lease);
  return message;
}

class Worker {
 public:
  explicit Worker(int commits) : transfer_(said_, commits), loop_({}, board_) {}
  void Run(const std::vector<v1::RouterMessage>& messages) {
    const worker::StreamId stream = loop_.OpenStream(router_);
    loop_.Post(stream, worker::Hello(kIncarnation));
    for (const v1::RouterMessage& message : messages) loop_.Post(stream, message);
    loop_.Start(core_, engine_);  // takes all of it at once
    ASSERT_TRUE(said_.handed_over.WaitForNotificationWithTimeout(kLong));
  }
  void Stop() { ASSERT_TRUE(loop_.Stop(worker::MakeError(v1::DRAINING_WORKER, "stopping"), kLong)); }
  worker::EngineLoop& loop() { return loop_; }
  PrefillRole& role() { return role_; }
  std::vector<std::string> words() const { return said_.words; }

  // All that was posted before has been handled and told.
  int MessagesSoFar() {
    int messages = 0;
    for (int i = 0; i < 2; ++i) {  // a second turn of the loop: what the first one brought is told after it
      absl::Notification handled;
      loop_.PostTask([&](absl::Time) { messages = router_->messages, handled.Notify(); });
      handled.WaitForNotification();
    }
    return messages;
  }

 private:
  Said said_;
  std::shared_ptr<Router> router_ = std::make_shared<Router>(said_);
  Transfer transfer_;
  worker::ReportBoard board_;
  worker::ScriptedEngine engine_;
  worker::RequestTable requests_{absl::Seconds(30)};
  PrefillRole role_{kLayout, engine_, requests_, transfer_};
  worker::WorkerCore core_{{kIncarnation, /*vocab=*/100}, engine_, requests_, role_};
  worker::EngineLoop loop_;
};

TEST(FirstToken, LeavesBeforeAnythingOfItsStepIsHandedOver) {
  Worker worker(1);
  worker.Run({Prefill("a", 75, 5)});
  worker.Stop();
  EXPECT_THAT(worker.words(),
              ElementsAre("blocks 0-2 of 5", "blocks 2-4 of 5", "token of a", "blocks 4-5 of 5", "commit of 5"));
}

TEST(FirstToken, DoesNotWaitForOthersOfItsStepEither) {
  Worker worker(2);
  worker.Run({Prefill("long", 40, 5), Prefill("short", 20, 6)});
  worker.Stop();
  EXPECT_THAT(worker.words(), ElementsAre("token of short", "blocks 0-2 of 5", "blocks 0-2 of 6", "commit of 6",
                                          "token of long", "blocks 2-3 of 5", "commit of 5"));
}

TEST(FirstToken, AcknowledgedPiecesMakeNoMessagesThatItWouldQueueBehind) {
  Worker worker(1);
  worker.Run({Prefill("a", 75, 5)});
  const int before = worker.MessagesSoFar();
  for (int i = 1; i <= 50; ++i) {
    worker.loop().PostTask([&, i](absl::Time at) { worker.role().OnAcked({kDecode, 5}, i, at); });
    if (i % 10 == 0) worker.MessagesSoFar();
  }
  EXPECT_EQ(worker.MessagesSoFar(), before);
  worker.Stop();
}

}  // namespace
}  // namespace sluice::prefill_worker
