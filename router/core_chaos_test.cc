// The core among workers that obey the protocol, in a world that does not: kills, restarts, broken links and pairs,
// refusals, cancels, deadlines and stop strings at random moments, from a seed that is printed.
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <random>
#include <set>

#include "proto/names.h"
#include "router/testing/core_world.h"
#include "router/testing/fake_pool.h"

namespace sluice::router {
namespace {

constexpr RouterCore::Sizes kEmpty{};
constexpr int64_t kBlocks = 30;

struct Cluster {
  const char* name;
  int both;
  int prefill;
  int decode;
};

class Chaos {
 public:
  Chaos(uint64_t seed, const Cluster& cluster)
      : rng_(seed), pool_(rng_, testing::Mishaps()), world_([&] {
          CoreOptions options;
          options.queue.limit = 20;
          options.policy.fallback = false;  // these prefill workers only prefill
          options.seed = seed;
          return options;
        }()) {
    for (int i = 0; i < cluster.both; ++i) slots_.push_back({pb::ROLE_BOTH});
    for (int i = 0; i < cluster.prefill; ++i) slots_.push_back({pb::ROLE_PREFILL});
    for (int i = 0; i < cluster.decode; ++i) slots_.push_back({pb::ROLE_DECODE});
    for (size_t slot = 0; slot < slots_.size(); ++slot) Start(slot);
  }

  void Run(int steps) {
    for (int step = 0; step < steps; ++step) {
      Disturb();
      Work();
    }
    pool_.Calm();
    for (int step = 0; step < 2000 && world_.ends_.size() < submitted_; ++step) Work();
    EXPECT_EQ(world_.ends_.size(), submitted_) << "every request ends";
    for (int i = 0; i < 100; ++i) Work();  // the last confirmations
    const RouterCore::Sizes sizes = world_.core_.sizes();
    EXPECT_EQ(sizes, kEmpty) << sizes.requests << " requests, " << sizes.queued << " queued, " << sizes.closing
                             << " closing, " << sizes.attempts << " attempts";
    for (const auto& [call, end] : world_.ends_) CheckEnd(call, end);
    for (const auto& [incarnation, worker] : pool_.workers()) {
      EXPECT_TRUE(worker->idle()) << RoleName(worker->role()) << " " << incarnation << " holds something";
    }
  }

  // The whole of it, for comparing runs.
  std::string Digest() const {
    std::string digest;
    for (const auto& [call, end] : world_.ends_) {
      absl::StrAppend(&digest, call, ":", end.status.ToString(), "@", absl::ToInt64Microseconds(end.at - kStart), ";");
    }
    return digest;
  }
  size_t submitted() const { return submitted_; }
  size_t good() const {
    return size_t(
        std::count_if(world_.ends_.begin(), world_.ends_.end(), [](const auto& e) { return e.second.status.ok(); }));
  }

 private:
  struct Slot {
    pb::Role role;
    uint64_t incarnation = 0;
    uint64_t session = 0;
  };

  void CheckEnd(uint64_t call, const ClientEnd& end) {
    SCOPED_TRACE(absl::StrCat("call ", call, ": ", end.status.ToString()));
    switch (end.status.code()) {
      case absl::StatusCode::kOk:
        EXPECT_TRUE(stopped_.contains(call) || world_.tokens_[call] == due_[call]) << world_.tokens_[call];
        EXPECT_EQ(end.reasons.size(), 1u);
        EXPECT_TRUE(stopped_.contains(call) || world_.tokens_[call] > 0);
        break;
      case absl::StatusCode::kInternal:
        EXPECT_NE(end.status.message().find("injected"), std::string::npos);
        break;
      case absl::StatusCode::kCancelled:
        EXPECT_TRUE(cancelled_.contains(call));
        break;
      case absl::StatusCode::kDeadlineExceeded:
        EXPECT_TRUE(hurried_.contains(call));
        break;
      default:
        EXPECT_TRUE(absl::IsUnavailable(end.status) || absl::IsResourceExhausted(end.status));
    }
  }

  // A new life on the slot's address.
  void Start(size_t slot) {
    slots_[slot].incarnation = next_incarnation_++;
    pool_.Start(slots_[slot].role, slots_[slot].incarnation, kBlocks);
    Announce(slot);
  }

  void Announce(size_t slot) {
    Slot& s = slots_[slot];
    s.session = next_session_++;
    world_.Do(WorkerAnnounced{s.session, Info(s.incarnation, 7000 + int(slot), kBlocks, s.role)});
  }

  size_t AnySlot() { return rng_() % slots_.size(); }

  void Disturb() {
    const uint64_t dice = rng_() % 1000;
    if (dice < 350) {
      Submit();
    } else if (dice < 400 && submitted_ > 0) {
      const uint64_t call = 1 + rng_() % submitted_;
      if (!world_.Ended(call)) cancelled_.insert(call);
      world_.Do(ClientCancel{call, absl::CancelledError("gone")});
    } else if (dice < 420 && submitted_ > 0) {
      const uint64_t call = 1 + rng_() % submitted_;
      if (!world_.Ended(call)) stopped_.insert(call);
      world_.Do(StopFound{call});
    } else if (dice < 426) {
      const size_t slot = AnySlot();
      pool_.Kill(slots_[slot].incarnation);
      if (rng_() % 3 == 0) world_.Do(AnnounceLost{slots_[slot].session});
      if (rng_() % 3 == 0) world_.Do(WorkerLeaving{slots_[slot].session});
      Start(slot);
    } else if (dice < 434) {
      BreakLink(slots_[AnySlot()].incarnation);
    } else if (dice < 440) {
      const size_t slot = AnySlot();
      world_.Do(AnnounceLost{slots_[slot].session});
      Announce(slot);
    } else if (dice < 446) {
      pool_.BreakPair(slots_[AnySlot()].incarnation, slots_[AnySlot()].incarnation);
    }
  }

  void Submit() {
    const uint64_t call = ++submitted_;
    const int max_tokens = rng_() % 8 == 0 ? 1 : 1 + int(rng_() % 40);
    due_[call] = testing::StopsAtFirst(absl::StrCat("r", call, "/", call)) ? 1 : max_tokens;
    absl::Time deadline = absl::InfiniteFuture();
    if (rng_() % 8 == 0) {
      deadline = world_.now_ + absl::Milliseconds(rng_() % 400);
      hurried_.insert(call);
    }
    world_.Submit(call, max_tokens, deadline, int(rng_() % 3), 1 + int(rng_() % 100));
  }

  void BreakLink(uint64_t incarnation) {
    auto link = world_.links_.find(incarnation);
    if (link == world_.links_.end()) return;
    pool_.Find(incarnation)->OnStreamEnd();
    up_.erase(link->second);
    world_.Do(LinkDown{link->second, absl::UnavailableError("reset")});
  }

  // Delivers what is on the way, steps the workers, lets time pass.
  void Work() {
    for (const Slot& slot : slots_) {
      auto link = world_.links_.find(slot.incarnation);
      if (link == world_.links_.end() || !up_.insert(link->second).second) continue;
      pool_.Find(slot.incarnation)->OnStreamEnd();
      pb::WorkerHello hello;
      hello.set_worker_incarnation(slot.incarnation);
      world_.Do(LinkUp{link->second, hello});
    }
    const std::vector<SendToWorker> sent = std::exchange(world_.sent_, {});
    for (const SendToWorker& send : sent) {
      testing::FakePoolWorker* worker = pool_.Find(world_.owners_.at(send.link));
      if (worker != nullptr && world_.links_[worker->incarnation()] == send.link) {
        worker->Handle(send.message, world_.now_);
      }
    }
    pool_.Deliver();
    for (const Slot& slot : slots_) {
      testing::FakePoolWorker& worker = *pool_.Find(slot.incarnation);
      if (rng_() % 4 != 0) worker.Step(world_.now_);
      // What a worker says arrives in order, but later or sooner than what others say.
      if (rng_() % 3 == 0) continue;
      pb::WorkerMessage message = worker.Take();
      *message.mutable_report() = worker.Report();
      world_.Do(WorkerBatch{world_.links_[slot.incarnation], std::move(message)});
    }
    world_.Pass(absl::Milliseconds(rng_() % 20));
    if (++works_ % 25 == 0) Heartbeats();
  }

  void Heartbeats() {
    for (const Slot& slot : slots_) {
      testing::FakePoolWorker& worker = *pool_.Find(slot.incarnation);
      if (auto answers = world_.answers_.find(slot.session); answers != world_.answers_.end()) {
        std::vector<uint64_t> peers;
        for (const pb::DecodePeer& peer : answers->second.back().decode_peers()) peers.push_back(peer.incarnation());
        worker.SetPeers(std::move(peers));
      }
      world_.Do(WorkerHeartbeat{slot.session, worker.Report()});
    }
  }

  std::mt19937_64 rng_;
  testing::FakePool pool_;
  World world_;
  std::vector<Slot> slots_;
  std::set<uint64_t> up_;  // links
  std::set<uint64_t> stopped_;
  std::set<uint64_t> cancelled_;
  std::set<uint64_t> hurried_;
  std::map<uint64_t, int> due_;  // tokens of a complete answer
  uint64_t next_incarnation_ = 1;
  uint64_t next_session_ = 1;
  uint64_t submitted_ = 0;
  uint64_t works_ = 0;
};

const Cluster kClusters[] = {
    {"3 both", 3, 0, 0}, {"1 P + 1 D", 0, 1, 1}, {"2 P + 2 D", 0, 2, 2}, {"1 both + 2 P + 1 D", 1, 2, 1}};

// Many short runs for the rare beginnings and ends, and a few long ones for what builds up.
void RunMany(int runs, int steps) {
  const uint64_t base = std::random_device()();
  for (const Cluster& cluster : kClusters) {
    size_t submitted = 0;
    size_t good = 0;
    for (uint64_t seed = base; seed < base + uint64_t(runs); ++seed) {
      SCOPED_TRACE(absl::StrCat("seed ", seed, ", ", cluster.name));
      Chaos chaos(seed, cluster);
      chaos.Run(steps);
      submitted += chaos.submitted();
      good += chaos.good();
      if (::testing::Test::HasFailure()) return;
    }
    std::cout << "seed " << base << ", " << runs << " runs of " << cluster.name << ": " << good << " of " << submitted
              << " requests were answered\n";
    EXPECT_GT(good * 5, submitted) << "the chaos must leave enough to be answered";
  }
}

TEST(CoreChaosTest, ManyShortRuns) {
  RunMany(500, 60);
}

TEST(CoreChaosTest, AFewLongRuns) {
  RunMany(5, 3000);
}

TEST(CoreChaosTest, TheSameSeedGivesTheSameRun) {
  for (const Cluster& cluster : kClusters) {
    Chaos first(5, cluster);
    Chaos second(5, cluster);
    first.Run(1000);
    second.Run(1000);
    EXPECT_EQ(first.Digest(), second.Digest());
  }
}

}  // namespace
}  // namespace sluice::router
