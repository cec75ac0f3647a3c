// The registration against a router's registry over a real loopback connection.
#include "worker/registration.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "glog/logging.h"
#include "gtest/gtest.h"
#include "proto/worker.grpc.pb.h"
#include "worker/listener.h"

namespace sluice::worker {
namespace {

// Remembers what it is told.
class FakeRouter final : public v1::Registry::Service {
 public:
  explicit FakeRouter(int port = 0, bool drain = false) : drain_(drain) {
    auto listening = Listen("127.0.0.1", port, {this});
    CHECK(listening.ok()) << listening.status();
    listening_ = *std::move(listening);
  }
  ~FakeRouter() override { listening_.server->Shutdown(std::chrono::system_clock::now()); }

  grpc::Status Announce(grpc::ServerContext*,
                        grpc::ServerReaderWriter<v1::AnnounceReply, v1::Announcement>* stream) override {
    v1::Announcement announcement;
    while (stream->Read(&announcement)) {
      {
        absl::MutexLock lock(&mutex_);
        heard_.push_back(announcement);
      }
      if (!announcement.has_info()) continue;
      v1::AnnounceReply reply;
      reply.set_router_incarnation(5);
      reply.set_heartbeat_ms(10);
      reply.set_drain(drain_);
      if (heartbeat_ms > 0) reply.set_heartbeat_ms(heartbeat_ms);
      reply.set_peers_valid(!peers.empty());
      for (const auto& [incarnation, port] : peers) {
        v1::DecodePeer& peer = *reply.add_decode_peers();
        peer.set_incarnation(incarnation);
        peer.mutable_control()->set_host("::1");
        peer.mutable_control()->set_port(port);
      }
      stream->Write(reply);
      if (!peers.empty()) {  // an answer without a list changes nothing
        reply.set_peers_valid(false);
        reply.clear_decode_peers();
        stream->Write(reply);
      }
    }
    return grpc::Status::OK;
  }

  bool Await(const std::function<bool(const std::vector<v1::Announcement>&)>& fits) {
    auto done = [&] { return fits(heard_); };
    absl::MutexLock lock(&mutex_);
    return mutex_.AwaitWithTimeout(absl::Condition(&done), absl::Seconds(20));
  }
  bool AwaitHeartbeats(size_t count) {
    return Await([count](const auto& heard) { return heard.size() > count; });
  }

  std::vector<v1::Announcement> heard() {
    absl::MutexLock lock(&mutex_);
    return heard_;
  }
  std::string address() const { return absl::StrCat("127.0.0.1:", listening_.port); }
  int port() const { return listening_.port; }

  // To be set before anybody announces itself.
  int heartbeat_ms = 0;
  std::vector<std::pair<uint64_t, int>> peers;

 private:
  const bool drain_;
  absl::Mutex mutex_;
  std::vector<v1::Announcement> heard_;
  Listening listening_;
};

RegistrationOptions To(const std::vector<std::string>& routers) {
  RegistrationOptions options;
  options.routers = routers;
  options.info.set_incarnation(99);
  options.first_retry = absl::Milliseconds(10);
  options.longest_retry = absl::Milliseconds(50);
  return options;
}

TEST(Registration, IntroducesItselfThenSendsNumberedReports) {
  FakeRouter router;
  ReportBoard board;
  v1::WorkerReport report;
  report.set_blocks_free(77);
  board.Publish(report);
  Registration registration(To({router.address()}), board);
  registration.Start();
  ASSERT_TRUE(router.AwaitHeartbeats(5));
  const std::vector<v1::Announcement> heard = router.heard();
  EXPECT_EQ(heard[0].info().incarnation(), 99u);
  uint64_t last = 0;
  for (size_t i = 0; i < heard.size(); ++i) {
    EXPECT_EQ(heard[i].has_info(), i == 0);
    EXPECT_EQ(heard[i].report().blocks_free(), 77);
    EXPECT_GT(heard[i].report().sequence(), last);
    EXPECT_FALSE(heard[i].leaving());
    last = heard[i].report().sequence();
  }
}

TEST(Registration, CollectsTheDecodePeersOfAllRouters) {
  FakeRouter one, two;
  one.peers = {{1, 11}, {2, 12}};
  two.peers = {{2, 12}, {3, 13}};
  ReportBoard board;
  absl::Mutex mutex;
  std::map<uint64_t, std::string> peers;
  RegistrationOptions options = To({one.address(), two.address()});
  options.on_peers = [&](std::map<uint64_t, std::string> now) {
    absl::MutexLock lock(&mutex);
    peers = std::move(now);
  };
  Registration registration(std::move(options), board);
  registration.Start();
  const std::map<uint64_t, std::string> all = {{1, "[::1]:11"}, {2, "[::1]:12"}, {3, "[::1]:13"}};
  const auto complete = [&] { return peers == all; };
  mutex.Lock();
  EXPECT_TRUE(mutex.AwaitWithTimeout(absl::Condition(&complete), absl::Seconds(20)));
  mutex.Unlock();
  ASSERT_TRUE(one.AwaitHeartbeats(5));
  registration.Stop(absl::Seconds(5));
  EXPECT_EQ(peers, all) << "an answer without a list changes nothing";
}

TEST(Registration, NewsDoNotWaitForTheHeartbeat) {
  FakeRouter router;
  router.heartbeat_ms = 3600000;
  ReportBoard board;
  Registration registration(To({router.address()}), board);
  registration.Start();
  ASSERT_TRUE(router.AwaitHeartbeats(1));
  board.SetPeers({7, 8});
  v1::PairStatus up, unknown;
  up.set_decode_incarnation(7);
  up.set_up(true);
  unknown.set_decode_incarnation(9);
  unknown.set_up(true);
  board.SetPair(up);
  board.SetPair(unknown);
  registration.ReportSoon();
  EXPECT_TRUE(router.Await([](const auto& heard) {
    const v1::WorkerReport& report = heard.back().report();
    return report.pairs_size() == 2 && report.pairs(0).decode_incarnation() == 7 && report.pairs(0).up() &&
           report.pairs(1).decode_incarnation() == 8 && !report.pairs(1).up();
  }));
  board.SetPeers({8});
  EXPECT_EQ(board.Take().pairs_size(), 1);
}

TEST(Registration, SendsWhatIsPublishedLater) {
  FakeRouter router;
  ReportBoard board;
  Registration registration(To({router.address()}), board);
  registration.Start();
  ASSERT_TRUE(router.AwaitHeartbeats(1));
  v1::WorkerReport report;
  report.set_steps(123);
  board.Publish(report);
  EXPECT_TRUE(router.Await([](const auto& heard) { return heard.back().report().steps() == 123; }));
}

TEST(Registration, SaysGoodbye) {
  FakeRouter router;
  ReportBoard board;
  Registration registration(To({router.address()}), board);
  registration.Start();
  ASSERT_TRUE(router.AwaitHeartbeats(1));
  registration.Stop(absl::Seconds(10));
  EXPECT_TRUE(router.heard().back().leaving());
}

TEST(Registration, ComesBackToARouterThatRestarts) {
  auto router = std::make_unique<FakeRouter>();
  const int port = router->port();
  ReportBoard board;
  Registration registration(To({router->address()}), board);
  registration.Start();
  for (int restart = 0; restart < 3; ++restart) {
    ASSERT_TRUE(router->AwaitHeartbeats(2));
    EXPECT_TRUE(router->heard()[0].has_info());
    router.reset();
    absl::SleepFor(absl::Milliseconds(60));
    router = std::make_unique<FakeRouter>(port);
  }
  EXPECT_TRUE(router->AwaitHeartbeats(2));
}

TEST(Registration, ARouterThatIsAwayDisturbsNoOther) {
  FakeRouter router;
  ReportBoard board;
  Registration registration(To({"127.0.0.1:1", router.address(), "no-such-host.invalid:1"}), board);
  registration.Start();
  EXPECT_TRUE(router.AwaitHeartbeats(10));
  registration.Stop(absl::Seconds(10));
  EXPECT_TRUE(router.heard().back().leaving());
}

TEST(Registration, RoutersThatARegistryNamesComeAndGo) {
  FakeRouter fixed, found;
  ReportBoard board;
  Registration registration(To({fixed.address()}), board);
  registration.Start();
  ASSERT_TRUE(fixed.AwaitHeartbeats(1));
  EXPECT_TRUE(found.heard().empty());
  registration.SetRouters({found.address(), fixed.address()});
  ASSERT_TRUE(found.AwaitHeartbeats(5));
  const std::vector<v1::Announcement> heard = fixed.heard();
  EXPECT_EQ(std::count_if(heard.begin(), heard.end(), [](const auto& a) { return a.has_info(); }), 1)
      << "named twice is still one router";
  registration.Stop(absl::Seconds(10));
  EXPECT_TRUE(fixed.heard().back().leaving());
  EXPECT_TRUE(found.heard().back().leaving());
}

// An etcd that came back empty names nobody for a moment.
TEST(Registration, ARouterThatAnswersIsNotGivenUpForTheRegistrysSake) {
  FakeRouter router;
  ReportBoard board;
  Registration registration(To({}), board);
  registration.SetRouters({router.address()});
  registration.Start();
  ASSERT_TRUE(router.AwaitHeartbeats(2));
  registration.SetRouters({});
  ASSERT_TRUE(router.AwaitHeartbeats(router.heard().size() + 10));
  for (const v1::Announcement& heard : router.heard()) EXPECT_FALSE(heard.leaving());
}

TEST(Registration, ARouterThatNobodyNamesAndThatIsDownIsGivenUpUntilItIsNamedAgain) {
  FakeRouter other;
  auto router = std::make_unique<FakeRouter>();
  const int port = router->port();
  ReportBoard board;
  Registration registration(To({other.address()}), board);
  registration.SetRouters({router->address()});
  registration.Start();
  ASSERT_TRUE(router->AwaitHeartbeats(2));
  registration.SetRouters({});
  ASSERT_TRUE(other.AwaitHeartbeats(other.heard().size() + 2));  // it has heard of that by now
  router.reset();
  ASSERT_TRUE(other.AwaitHeartbeats(other.heard().size() + 2));
  router = std::make_unique<FakeRouter>(port);
  ASSERT_TRUE(other.AwaitHeartbeats(other.heard().size() + 30));  // several of the longest pauses
  EXPECT_TRUE(router->heard().empty());
  registration.SetRouters({router->address()});
  EXPECT_TRUE(router->AwaitHeartbeats(2));
}

TEST(Registration, ANamedRouterThatIsAwayIsTriedUntilItIsNamedNoMore) {
  FakeRouter router;
  ReportBoard board;
  Registration registration(To({}), board);
  registration.Start();
  registration.SetRouters({"127.0.0.1:1", router.address()});
  ASSERT_TRUE(router.AwaitHeartbeats(5));
  registration.SetRouters({router.address()});
  ASSERT_TRUE(router.AwaitHeartbeats(router.heard().size() + 5));
  registration.Stop(absl::Seconds(10));
  EXPECT_TRUE(router.heard().back().leaving());
}

TEST(Registration, PassesADrainOnOnce) {
  FakeRouter router(0, /*drain=*/true);
  ReportBoard board;
  RegistrationOptions options = To({router.address()});
  absl::Mutex mutex;
  int drains = 0;
  options.on_drain = [&] {
    absl::MutexLock lock(&mutex);
    ++drains;
  };
  Registration registration(options, board);
  registration.Start();
  ASSERT_TRUE(router.AwaitHeartbeats(5));
  registration.Stop(absl::Seconds(10));
  absl::MutexLock lock(&mutex);
  EXPECT_EQ(drains, 1);
}

// Accepts the call and never says a word.
class MuteRouter final : public v1::Registry::Service {
 public:
  grpc::Status Announce(grpc::ServerContext* context,
                        grpc::ServerReaderWriter<v1::AnnounceReply, v1::Announcement>*) override {
    called.Notify();
    while (!context->IsCancelled()) absl::SleepFor(absl::Milliseconds(1));
    return grpc::Status::CANCELLED;
  }
  absl::Notification called;
};

TEST(Registration, LeavesARouterThatDoesNotAnswer) {
  MuteRouter router;
  auto listening = Listen("127.0.0.1", 0, {&router});
  ASSERT_TRUE(listening.ok());
  ReportBoard board;
  {
    Registration registration(To({absl::StrCat("127.0.0.1:", listening->port)}), board);
    registration.Start();
    router.called.WaitForNotification();
    registration.Stop(absl::Milliseconds(50));
  }
  listening->server->Shutdown(std::chrono::system_clock::now());
}

TEST(Registration, StopsWithoutEverHavingStarted) {
  ReportBoard board;
  Registration idle(To({}), board);
  Registration nobody(To({}), board);
  nobody.Start();
  nobody.Stop(absl::Seconds(10));
}

}  // namespace
}  // namespace sluice::worker
