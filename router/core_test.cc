#include "router/core.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <iostream>

#include "absl/strings/str_cat.h"

namespace sluice::router {
namespace {

using ::testing::HasSubstr;

const absl::Time kStart = absl::UnixEpoch() + absl::Hours(1);

pb::WorkerInfo Info(uint64_t incarnation, int port, int64_t blocks = 100) {
  pb::WorkerInfo info;
  info.set_role(pb::ROLE_BOTH);
  info.set_incarnation(incarnation);
  info.mutable_fingerprint()->set_model_hash("abcdef");
  info.mutable_fingerprint()->set_block_size(16);
  info.mutable_fingerprint()->set_protocol_version(kProtocolVersion);
  info.mutable_work()->set_host("127.0.0.1");
  info.mutable_work()->set_port(port);
  info.set_blocks_total(blocks);
  info.set_max_running(4);
  info.set_max_step_tokens(64);
  info.set_context_length(2048);
  return info;
}

// The world around a core: remembers what it said and answers what a test asks for.
class World {
 public:
  explicit World(CoreOptions options = {})
      : core_([&] {
          options.registry.model_hash = "abcdef";
          options.registry.model = "tiny";
          return options;
        }()) {}

  std::vector<Action> Do(Event event) {
    std::vector<Action> actions = core_.Handle(std::move(event), now_);
    for (const Action& action : actions) Record(action);
    return actions;
  }

  void Pass(absl::Duration time) {
    const absl::Time until = now_ + time;
    while (core_.NextDeadline() <= until) {
      now_ = std::max(now_, core_.NextDeadline());
      Do(Tick{});
    }
    now_ = until;
    Do(Tick{});
  }

  void Join(uint64_t incarnation, uint64_t session, int64_t blocks = 100) {
    Do(WorkerAnnounced{session, Info(incarnation, 7000 + int(incarnation), blocks)});
    const uint64_t link = links_.at(incarnation);
    pb::WorkerHello hello;
    hello.set_worker_incarnation(incarnation);
    Do(LinkUp{link, hello});
  }

  void Submit(uint64_t call, int max_tokens = 8, absl::Time deadline = absl::InfiniteFuture(), int priority = 0) {
    router::Submit submit{
        .call = call, .request_id = absl::StrCat("r", call), .sequence = {}, .received = now_, .deadline = deadline};
    for (int i = 0; i < 5; ++i) submit.sequence.add_tokens(i);
    submit.sequence.set_num_prompt_tokens(5);
    submit.sequence.set_priority(priority);
    submit.sequence.mutable_sampling()->set_max_tokens(max_tokens);
    submit.sequence.mutable_sampling()->set_n(1);
    Do(std::move(submit));
  }

  // What the worker with `incarnation` says about a call's newest attempt.
  pb::WorkerEvent About(uint64_t call) {
    pb::WorkerEvent event;
    *event.mutable_key() = keys_.at(call);
    return event;
  }
  void Say(uint64_t incarnation, const pb::WorkerEvent& event) {
    pb::WorkerMessage message;
    *message.add_events() = event;
    Do(WorkerBatch{links_.at(incarnation), message});
  }
  void Grant(uint64_t incarnation, uint64_t call) {
    pb::WorkerEvent event = About(call);
    event.mutable_lease_granted()->set_lease_id(call + 1000);
    event.mutable_lease_granted()->set_lease_ms(9000);
    Say(incarnation, event);
  }
  void SendTokens(uint64_t incarnation, uint64_t call, int first, int count) {
    pb::WorkerEvent event = About(call);
    event.mutable_tokens()->set_first_index(first);
    for (int i = 0; i < count; ++i) event.mutable_tokens()->add_token_ids(first + i);
    Say(incarnation, event);
  }
  void Finish(uint64_t incarnation, uint64_t call) {
    pb::WorkerEvent event = About(call);
    event.mutable_finished()->set_last(true);
    event.mutable_finished()->set_reason(pb::FINISH_REASON_LENGTH);
    Say(incarnation, event);
  }
  void Refuse(uint64_t incarnation, uint64_t call, pb::ErrorReason reason, int64_t free = 0) {
    pb::WorkerEvent event = About(call);
    event.mutable_refused()->mutable_error()->set_reason(reason);
    event.mutable_refused()->set_blocks_free(free);
    Say(incarnation, event);
  }
  void Fail(uint64_t incarnation, uint64_t call, absl::StatusCode code) {
    pb::WorkerEvent event = About(call);
    event.mutable_failed()->mutable_error()->set_code(int(code));
    Say(incarnation, event);
  }
  void Heartbeat(uint64_t session, int64_t free) {
    pb::WorkerReport report;
    report.set_sequence(++report_sequence_);
    report.set_blocks_free(free);
    Do(WorkerHeartbeat{session, report});
  }

  bool Ended(uint64_t call) const { return ends_.contains(call); }
  absl::Status EndOf(uint64_t call) const { return ends_.at(call).status; }
  bool Reserved(uint64_t call) const { return keys_.contains(call); }
  uint64_t WorkerOf(uint64_t call) const { return placed_.at(call); }

  void Record(const Action& action) {
    if (const auto* end = std::get_if<ClientEnd>(&action)) {
      EXPECT_FALSE(ends_.contains(end->call)) << "call " << end->call << " ended twice";
      ends_[end->call] = *end;
    } else if (const auto* tokens = std::get_if<ClientTokens>(&action)) {
      EXPECT_FALSE(ends_.contains(tokens->call)) << "tokens after the end";
      EXPECT_EQ(tokens->tokens.first_index(), tokens_[tokens->call]);
      tokens_[tokens->call] += tokens->tokens.token_ids_size();
    } else if (const auto* connect = std::get_if<ConnectWorker>(&action)) {
      links_[connect->incarnation] = connect->link;
      owners_[connect->link] = connect->incarnation;
    } else if (const auto* disconnect = std::get_if<DisconnectWorker>(&action)) {
      disconnected_.push_back(disconnect->link);
    } else if (const auto* send = std::get_if<SendToWorker>(&action)) {
      sent_.push_back(*send);
      if (send->message.has_reserve()) {
        const pb::RequestKey& key = send->message.reserve().key();
        const uint64_t call = std::stoull(key.request_id().substr(key.request_id().find('/') + 1));
        keys_[call] = key;
        placed_[call] = owners_.at(send->link);
      }
    } else if (const auto* pool = std::get_if<PoolChanged>(&action)) {
      pool_ = *pool;
    } else if (const auto* closed = std::get_if<CloseAnnounce>(&action)) {
      closed_[closed->session] = closed->status;
    }
  }

  int Cancels() const {
    return int(std::count_if(sent_.begin(), sent_.end(), [](const auto& s) { return s.message.has_cancel(); }));
  }

  absl::Time now_ = kStart;
  RouterCore core_;
  std::map<uint64_t, ClientEnd> ends_;
  std::map<uint64_t, int> tokens_;
  std::map<uint64_t, uint64_t> links_;   // incarnation -> newest link
  std::map<uint64_t, uint64_t> owners_;  // link -> incarnation
  std::map<uint64_t, pb::RequestKey> keys_;
  std::map<uint64_t, uint64_t> placed_;
  std::map<uint64_t, absl::Status> closed_;
  std::vector<SendToWorker> sent_;
  std::vector<uint64_t> disconnected_;
  PoolChanged pool_;
  uint64_t report_sequence_ = 0;
};

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
  World world;
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

TEST(CoreTest, SilenceForALeaseEndsItsRequests) {
  World world;
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
  World world;
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
  World world;
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
  world.Heartbeat(first, 100);
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
  options.queue_limit = 3;
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

// ---- chaos: fake workers that obey the protocol, a world that does not ----

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
