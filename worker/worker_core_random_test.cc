// The worker's core under random messages, in any order: every request is answered once, its tokens are counted without
// a gap, it ends once, and no block is lost.
#include <cstdio>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "worker/testing/computing_role.h"
#include "worker/testing/messages.h"
#include "worker/testing/scripted_engine.h"
#include "worker/worker_core.h"

namespace sluice::worker {
namespace {

constexpr uint64_t kIncarnation = 42;
constexpr int kLeaseMs = 1000;

absl::Time At(int ms) {
  return absl::UnixEpoch() + absl::Milliseconds(ms);
}

// What a stream has been told about its requests; checks the core's promises.
class Ledger {
 public:
  void Asked(const std::string& id) { ++asked_[id]; }
  void Heard(const v1::WorkerEvent& e) {
    const std::string& id = e.key().request_id();
    if (e.has_lease_granted() || e.has_refused()) {
      ASSERT_GT(asked_[id]--, 0) << "an answer nobody asked for: " << id;
      if (e.has_refused()) return;
      ASSERT_TRUE(live_.insert(id).second) << id << " was granted twice";
      next_index_[id] = 0;
      leases_[id] = e.lease_granted().lease_id();
      return;
    }
    ASSERT_TRUE(live_.count(id)) << "after the end of " << id << ": " << e.ShortDebugString();
    if (e.has_tokens()) {
      ASSERT_EQ(e.tokens().first_index(), next_index_[id]);
      next_index_[id] += e.tokens().token_ids_size();
    } else {
      ASSERT_TRUE(e.has_failed() || (e.has_finished() && e.finished().last())) << e.ShortDebugString();
      live_.erase(id);
    }
  }
  void Released(const std::string& id) { live_.erase(id); }
  uint64_t lease(const std::string& id) { return live_.count(id) ? leases_[id] : 0; }
  size_t live() const { return live_.size(); }
  int unanswered() const {
    int n = 0;
    for (const auto& [id, count] : asked_) n += count;
    return n;
  }

 private:
  std::map<std::string, int> asked_;
  std::set<std::string> live_;
  std::map<std::string, int> next_index_;
  std::map<std::string, uint64_t> leases_;
};

TEST(WorkerCoreProperty, AnyOrderOfMessagesKeepsThePromises) {
  const uint32_t seed = std::random_device()();
  std::printf("seed %u\n", unsigned(seed));
  std::mt19937 random(seed);
  ScriptedEngine engine({.num_blocks = 24, .stop_token = 10});
  RequestTable requests(absl::Milliseconds(kLeaseMs));
  ComputingRole role(engine, requests);
  WorkerCore core({kIncarnation, /*vocab=*/100}, engine, requests, role);
  std::map<StreamId, Ledger> streams;
  StreamId next_stream = 1;
  int now = 0;
  auto deliver = [&] {
    for (const Outgoing& out : core.TakeOutgoing()) {
      auto it = streams.find(out.stream);
      ASSERT_NE(it, streams.end()) << "a message for a stream that ended";
      for (const v1::WorkerEvent& e : out.message.events()) it->second.Heard(e);
    }
  };
  for (int i = 0; i < 30000; ++i) {
    now += int(random() % 20);
    if (streams.size() < 3) {
      core.OnMessage(next_stream, Hello(kIncarnation, 100 + next_stream), At(now));
      streams[next_stream++];
    }
    auto stream = std::next(streams.begin(), random() % streams.size());
    const std::string id = std::to_string(random() % 8);
    switch (random() % 16) {
      case 0:
      case 1:
      case 2:
        core.OnMessage(stream->first, Reserve(id, int(random() % 90), int(random() % 30), int(random() % 500) - 50),
                       At(now));
        stream->second.Asked(id);
        break;
      case 3:
        core.OnMessage(stream->first, Cancel(id), At(now));
        break;
      case 4:
        if (const uint64_t lease = stream->second.lease(id)) {
          deliver();
          core.OnMessage(stream->first, Release(id, lease), At(now));
          if (stream->second.lease(id) == lease) stream->second.Released(id);
        }
        break;
      case 5:
        core.OnMessage(stream->first, Renew({stream->second.lease(id), random() % 50}), At(now));
        break;
      case 6:
        if (random() % 20 == 0) {
          core.OnStreamEnd(stream->first);
          streams.erase(stream);
        }
        break;
      case 7:
        deliver();
        break;
      default:
        core.Tick(At(now));
        ASSERT_GT(core.NextTimer(), At(now));
        ASSERT_TRUE(core.Step([] { return At(0); }).ok());
        break;
    }
    if (testing::Test::HasFatalFailure()) return;
  }
  deliver();
  size_t live = 0;
  for (const auto& [id, ledger] : streams) {
    live += ledger.live();
    EXPECT_EQ(ledger.unanswered(), 0);
  }
  EXPECT_EQ(core.live_requests(), live);
  for (const auto& [id, ledger] : streams) core.OnStreamEnd(id);
  EXPECT_EQ(core.live_requests(), 0u);
  EXPECT_EQ(engine.stats().blocks_free, 24);
  EXPECT_EQ(core.NextTimer(), absl::InfiniteFuture());
}

}  // namespace
}  // namespace sluice::worker
