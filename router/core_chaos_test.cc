// The core among fake workers that obey the protocol, in a world that does not: kills, restarts, broken links, cancels,
// deadlines and stop strings at random moments, from a seed that is printed.
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <memory>
#include <random>
#include <set>

#include "router/testing/core_world.h"

namespace sluice::router {
namespace {

constexpr RouterCore::Sizes kEmpty{};

class FakeWorker {
 public:
  FakeWorker(uint64_t incarnation, int64_t blocks) : incarnation_(incarnation), free_(blocks) {}

  struct Job {
    pb::RequestKey key;
    uint64_t lease = 0;
    int next = 0;
    int max_tokens = 0;
    int64_t blocks = 0;
  };

  void Handle(const pb::RouterMessage& message, std::mt19937_64& rng) {
    if (message.has_reserve()) {
      const pb::Reserve& reserve = message.reserve();
      const int64_t blocks = (reserve.sequence().tokens_size() + reserve.sequence().sampling().max_tokens() + 15) / 16;
      pb::WorkerEvent& event = Out(reserve.key());
      if (blocks > free_ || rng() % 16 == 0) {
        event.mutable_refused()->mutable_error()->set_reason(pb::NO_BLOCKS);
        event.mutable_refused()->set_blocks_free(free_);
        return;
      }
      free_ -= blocks;
      jobs_.push_back({reserve.key(), ++next_lease_, 0, reserve.sequence().sampling().max_tokens(), blocks});
      event.mutable_lease_granted()->set_lease_id(next_lease_);
      event.mutable_lease_granted()->set_lease_ms(3000);
    } else if (message.has_cancel()) {
      for (size_t i = 0; i < jobs_.size(); ++i) {
        if (jobs_[i].key.request_id() == message.cancel().key().request_id()) {
          Out(jobs_[i].key).mutable_failed()->mutable_error()->set_code(1);
          End(i);
          return;
        }
      }
    }
  }

  void Step(std::mt19937_64& rng) {
    for (size_t i = 0; i < jobs_.size();) {
      Job& job = jobs_[i];
      if (rng() % 64 == 0) {
        Out(job.key).mutable_failed()->mutable_error()->set_code(13);
        End(i);
        continue;
      }
      pb::Tokens& tokens = *Out(job.key).mutable_tokens();
      // Now and then some are repeated.
      const int first = job.next > 0 && rng() % 8 == 0 ? job.next - 1 : job.next;
      tokens.set_first_index(first);
      for (int index = first; index <= job.next; ++index) tokens.add_token_ids(index);
      if (++job.next == job.max_tokens) {
        pb::Finished& finished = *Out(job.key).mutable_finished();
        finished.set_reason(pb::FINISH_REASON_LENGTH);
        finished.set_last(true);
        End(i);
        continue;
      }
      ++i;
    }
    pb::WorkerReport& report = *out_.mutable_report();
    report.set_sequence(++sequence_);
    report.set_blocks_free(free_);
    report.set_running(int(jobs_.size()));
  }

  pb::WorkerMessage Take() { return std::exchange(out_, {}); }
  void DropAll() {
    while (!jobs_.empty()) End(0);
    out_.Clear();
  }

  const uint64_t incarnation_;
  int64_t free_;

 private:
  pb::WorkerEvent& Out(const pb::RequestKey& key) {
    pb::WorkerEvent& event = *out_.add_events();
    *event.mutable_key() = key;
    return event;
  }
  void End(size_t i) {
    free_ += jobs_[i].blocks;
    jobs_.erase(jobs_.begin() + std::ptrdiff_t(i));
  }

  std::vector<Job> jobs_;
  uint64_t next_lease_ = 0;
  uint64_t sequence_ = 0;
  pb::WorkerMessage out_;
};

class Chaos {
 public:
  explicit Chaos(uint64_t seed)
      : rng_(seed), world_([&] {
          CoreOptions options;
          options.queue_limit = 20;
          options.seed = seed;
          return options;
        }()) {}

  void Run(int steps) {
    for (int i = 0; i < 3; ++i) StartWorker(i);
    for (int step = 0; step < steps; ++step) {
      Disturb(true);
      Work();
    }
    for (int step = 0; step < 2000 && world_.ends_.size() < submitted_; ++step) Work();
    EXPECT_EQ(world_.ends_.size(), submitted_) << "every request ends";
    for (int i = 0; i < 100; ++i) Work();  // the last confirmations
    const RouterCore::Sizes sizes = world_.core_.sizes();
    EXPECT_EQ(sizes, kEmpty) << sizes.requests << " " << sizes.queued << " " << sizes.closing << " " << sizes.attempts;
    for (const auto& [call, end] : world_.ends_) {
      if (end.status.ok() && !stopped_.contains(call)) {
        EXPECT_EQ(world_.tokens_[call], max_tokens_[call]);
      }
    }
    for (const auto& worker : workers_) EXPECT_EQ(worker->free_, 30);
  }

  size_t good() const {
    return size_t(
        std::count_if(world_.ends_.begin(), world_.ends_.end(), [](const auto& e) { return e.second.status.ok(); }));
  }
  size_t submitted() const { return submitted_; }

 private:
  void StartWorker(int slot) {
    auto worker = std::make_unique<FakeWorker>(next_incarnation_++, 30);
    if (size_t(slot) < workers_.size()) {
      workers_[size_t(slot)] = std::move(worker);
    } else {
      workers_.push_back(std::move(worker));
      sessions_.push_back(0);
    }
    Announce(slot);
  }

  void Announce(int slot) {
    sessions_[size_t(slot)] = next_session_++;
    world_.Do(WorkerAnnounced{sessions_[size_t(slot)], Info(workers_[size_t(slot)]->incarnation_, 7000 + slot, 30)});
  }

  void Disturb(bool submit) {
    const uint64_t dice = rng_() % 1000;
    if (submit && dice < 350) {
      const uint64_t call = ++submitted_;
      max_tokens_[call] = 1 + int(rng_() % 40);
      const absl::Time deadline =
          rng_() % 8 == 0 ? world_.now_ + absl::Milliseconds(rng_() % 400) : absl::InfiniteFuture();
      world_.Submit(call, max_tokens_[call], deadline, int(rng_() % 3));
    } else if (dice < 400 && submitted_ > 0) {
      world_.Do(ClientCancel{1 + rng_() % submitted_, absl::CancelledError("gone")});
    } else if (dice < 420 && submitted_ > 0) {
      const uint64_t call = 1 + rng_() % submitted_;
      if (!world_.Ended(call)) stopped_.insert(call);
      world_.Do(StopFound{call});
    } else if (dice < 426) {
      const int slot = int(rng_() % workers_.size());
      const uint64_t session = sessions_[size_t(slot)];
      if (rng_() % 2 == 0) world_.Do(AnnounceLost{session});
      StartWorker(slot);  // killed and restarted on the same address
    } else if (dice < 434) {
      const size_t slot = rng_() % workers_.size();
      const uint64_t incarnation = workers_[slot]->incarnation_;
      if (world_.links_.contains(incarnation)) {
        workers_[slot]->DropAll();
        up_.erase(world_.links_[incarnation]);
        world_.Do(LinkDown{world_.links_[incarnation], absl::UnavailableError("reset")});
      }
    } else if (dice < 440) {
      const int slot = int(rng_() % workers_.size());
      world_.Do(AnnounceLost{sessions_[size_t(slot)]});
      Announce(slot);
    }
  }

  // Delivers what is on the way, steps the workers, lets time pass.
  void Work() {
    for (size_t slot = 0; slot < workers_.size(); ++slot) {
      FakeWorker& worker = *workers_[slot];
      auto link = world_.links_.find(worker.incarnation_);
      if (link != world_.links_.end() && up_.insert(link->second).second) {
        worker.DropAll();
        pb::WorkerHello hello;
        hello.set_worker_incarnation(worker.incarnation_);
        world_.Do(LinkUp{link->second, hello});
      }
    }
    std::vector<SendToWorker> sent = std::exchange(world_.sent_, {});
    for (const SendToWorker& send : sent) {
      for (auto& worker : workers_) {
        if (world_.links_[worker->incarnation_] == send.link) worker->Handle(send.message, rng_);
      }
    }
    for (size_t slot = 0; slot < workers_.size(); ++slot) {
      FakeWorker& worker = *workers_[slot];
      if (rng_() % 4 != 0) worker.Step(rng_);
      if (rng_() % 3 != 0) world_.Do(WorkerBatch{world_.links_[worker.incarnation_], worker.Take()});
    }
    world_.Pass(absl::Milliseconds(rng_() % 20));
    if (++works_ % 25 == 0) {
      for (uint64_t session : sessions_) world_.Do(WorkerHeartbeat{session, {}});
    }
  }

  std::mt19937_64 rng_;
  World world_;
  std::vector<std::unique_ptr<FakeWorker>> workers_;
  std::vector<uint64_t> sessions_;
  std::set<uint64_t> up_;
  std::set<uint64_t> stopped_;
  std::map<uint64_t, int> max_tokens_;
  uint64_t next_incarnation_ = 1;
  uint64_t next_session_ = 1;
  uint64_t submitted_ = 0;
  uint64_t works_ = 0;
};

TEST(CoreChaosTest, EveryRequestEndsOnceWithConsecutiveTokensAndNothingLeaks) {
  const uint64_t base = std::random_device()();
  size_t submitted = 0;
  size_t good = 0;
  for (uint64_t seed = base; seed < base + 10; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    Chaos chaos(seed);
    chaos.Run(3000);
    submitted += chaos.submitted();
    good += chaos.good();
    if (HasFailure()) break;
  }
  std::cout << "seed " << base << ": " << good << " of " << submitted << " requests were answered\n";
  EXPECT_GT(good * 4, submitted) << "the chaos must leave enough to be answered";
}

TEST(CoreChaosTest, TheSameSeedGivesTheSameRun) {
  Chaos first(5);
  Chaos second(5);
  first.Run(1000);
  second.Run(1000);
  EXPECT_EQ(first.good(), second.good());
  EXPECT_EQ(first.submitted(), second.submitted());
}

}  // namespace
}  // namespace sluice::router
