// Prefill and decode apart, in one process and without gRPC: two engines, each with the thread that plans and the
// thread that executes, and the transfer between them with its two threads. Requests are cancelled and pieces are
// damaged meanwhile; every answer that comes is, bit for bit, the one of a single engine.
//
// This is the test to run under ThreadSanitizer: nothing in it synchronises in a library that TSan cannot see into.
#include <link.h>

#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "engine/engine.h"
#include "engine/testing/answers.h"
#include "engine/testing/tiny_setup.h"
#include "glog/logging.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/in_memory_pair.h"
#include "worker/step_thread.h"

namespace sluice {
namespace {

using engine::Answer;
using engine::Engine;
using engine::EngineRequest;

constexpr absl::Duration kLong = absl::Seconds(60);  // only a broken test waits this long
constexpr int kBlocks = 120;
constexpr int kBlockSize = 8;

const engine::TinySetup& Setup() {
  static const engine::TinySetup& setup = *new engine::TinySetup(engine::MakeTinySetup({.ffn = 160, .context = 256}));
  return setup;
}

std::unique_ptr<Engine> NewEngine(int chunk) {
  auto engine = Engine::Create(
      *Setup().file, *Setup().backend,
      {.block_size = kBlockSize, .num_blocks = kBlocks, .scheduler = {chunk, 8}, .prefix_caching = true});
  CHECK(engine.ok()) << engine.status();
  return *std::move(engine);
}

// An engine as a worker runs it: one thread does all but execute, the other executes.
class EngineHost {
 public:
  using OnStep = std::function<void(Engine&, const std::vector<engine::TokenOutput>&)>;

  EngineHost(int chunk, int steps_ahead, OnStep on_step)
      : steps_ahead_(steps_ahead),
        on_step_(std::move(on_step)),
        engine_(NewEngine(chunk)),
        port_(*engine_),
        thread_(absl::Seconds(1), [](absl::Time) {}),
        steps_(port_, [this] { thread_.Post([this] { Commit(); }); }) {}
  ~EngineHost() {
    thread_.Stop();
    steps_.Stop();
  }

  void Post(std::function<void(Engine&)> task) {
    thread_.Post([this, task = std::move(task)] {
      task(*engine_);
      Plan();
    });
  }
  kvtransfer::PoolView kv() {
    return {.layout = engine_->kv_layout(), .first_head = 0, .num_blocks = kBlocks, .layer_data = [this](int layer) {
              return static_cast<std::byte*>(engine_->kv_layer_data(layer));
            }};
  }
  bool AwaitBaseline() {
    int free = 0;
    for (const absl::Time end = absl::Now() + kLong; free != kBlocks && absl::Now() < end;) {
      absl::Mutex mutex;
      bool known = false;
      Post([&](Engine& engine) {
        absl::MutexLock lock(&mutex);
        free = engine.stats().blocks_free;
        known = true;
      });
      absl::MutexLock lock(&mutex);
      mutex.Await(absl::Condition(&known));
    }
    return free == kBlocks;
  }

 private:
  void Plan() {
    while (under_way_ < steps_ahead_) {
      auto step = engine_->Begin();
      if (step == nullptr) return;
      ++under_way_;
      steps_.Submit(std::move(step));
    }
  }
  void Commit() {
    while (auto done = steps_.Take()) {
      EXPECT_TRUE(done->status.ok()) << done->status;
      --under_way_;
      on_step_(*engine_, engine_->Commit(std::move(done->work)));
    }
    Plan();
  }

  const int steps_ahead_;
  const OnStep on_step_;
  const std::unique_ptr<Engine> engine_;
  worker::LocalEngine port_;
  int under_way_ = 0;  // of the thread
  kvtransfer::SerialThread thread_;
  worker::StepThread steps_;
};

// What the client of each request knows.
class Clients {
 public:
  void Take(const engine::TokenOutput& out) {
    absl::MutexLock lock(&mutex_);
    engine::Take(out, answers_);
    if (out.finish != engine::FinishReason::kNone) ended_[out.id] = absl::OkStatus();
  }
  void Fail(uint64_t id, const absl::Status& why) {
    absl::MutexLock lock(&mutex_);
    ended_.try_emplace(id, why);
  }
  absl::Status Await(uint64_t id) {
    absl::MutexLock lock(&mutex_);
    const auto over = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return ended_.contains(id); };
    if (!mutex_.AwaitWithTimeout(absl::Condition(&over), kLong)) return absl::DeadlineExceededError("it never ended");
    return ended_.at(id);
  }
  Answer AnswerOf(uint64_t id) {
    absl::MutexLock lock(&mutex_);
    return answers_[{id, 0}];
  }

 private:
  absl::Mutex mutex_;
  engine::Answers answers_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, absl::Status> ended_ ABSL_GUARDED_BY(mutex_);
};

// A prefill and a decode engine, and what their roles do with a request. Its id is its lease.
class Split {
 public:
  Split(int steps_ahead, kvtransfer::FaultPlan faults)
      : prefill_(24, steps_ahead, [this](Engine& e, const auto& outputs) { OnPrefillStep(e, outputs); }),
        decode_(32, steps_ahead, [this](Engine&, const auto& outputs) {
          for (const engine::TokenOutput& out : outputs) clients_.Take(out);
        }) {
    faults_->plan = std::move(faults);
    NewEpoch();
  }
  // The pairs first: they read and write the engines' blocks.
  ~Split() { pairs_.clear(); }

  void NewEpoch() {
    pairs_.push_back(
        std::make_unique<InMemoryPair>(pairs_.size() + 1, prefill_.kv(), decode_.kv(), faults_,
                                       InMemoryPair::Callbacks{[this](const auto& end) { OnSent(end); },
                                                               [this](const auto& end) { OnReceived(end); }}));
  }

  void Start(EngineRequest request) {
    InMemoryPair* const pair = pairs_.back().get();
    decode_.Post([this, pair, r = std::move(request)](Engine& engine) mutable {
      EngineRequest first = r;
      r.awaiting_kv = true;
      const uint64_t id = r.id;
      if (absl::Status s = engine.Add(std::move(r)); !s.ok()) return clients_.Fail(id, s);
      awaiting_.insert(id);
      pair->Expect(id, engine.BlocksOf(id), engine.CachedTokensOf(id) / kBlockSize);
      prefill_.Post([this, pair, first = std::move(first), cached = engine.CachedTokensOf(id)](Engine& p) {
        Prefill(p, pair, first, cached);
      });
    });
  }

  // From both ends, as the router does it.
  void Cancel(uint64_t id) {
    clients_.Fail(id, absl::CancelledError("client"));
    prefill_.Post([this, id](Engine& engine) {
      cancelled_.insert(id);
      const auto job = jobs_.find(id);
      if (job == jobs_.end()) return;
      if (!job->second.opened) {
        engine.Cancel(id);
        jobs_.erase(job);
      } else {
        engine.Park(id);
        job->second.pair->Cancel(id);
      }
    });
    InMemoryPair* const pair = pairs_.back().get();
    decode_.Post([this, pair, id](Engine& engine) {
      if (awaiting_.contains(id)) {
        pair->Forget(id);
      } else {
        engine.Cancel(id);
      }
    });
  }

  Clients& clients() { return clients_; }
  uint64_t injected() const { return faults_->injected; }
  bool AwaitBaseline() { return prefill_.AwaitBaseline() && decode_.AwaitBaseline(); }

 private:
  struct Job {
    InMemoryPair* pair;
    int tokens;
    int sent;  // blocks
    bool opened = false;
    v1::Commit commit;
  };

  void Prefill(Engine& engine, InMemoryPair* pair, EngineRequest request, int cached) {
    const uint64_t id = request.id;
    if (cancelled_.contains(id)) return;
    request.park_after_first = true;
    const int tokens = int(request.tokens.size());
    if (absl::Status s = engine.Add(std::move(request)); !s.ok()) {
      clients_.Fail(id, s);
      return decode_.Post([pair, id](Engine&) { pair->Forget(id); });
    }
    jobs_[id] = {pair, tokens, cached / kBlockSize};
  }

  void OnPrefillStep(Engine& engine, const std::vector<engine::TokenOutput>& outputs) {
    for (const engine::TokenOutput& out : outputs) {
      if (!jobs_.contains(out.id)) continue;
      clients_.Take(out);
      jobs_.at(out.id).commit.add_first_tokens()->set_token_id(out.sampled.token);
    }
    for (const engine::SequenceProgress& p : engine.progress()) {
      const auto it = jobs_.find(p.id);
      if (it == jobs_.end()) continue;
      Job& job = it->second;
      if (!std::exchange(job.opened, true)) job.pair->Open(p.id, engine.BlocksOf(p.id));
      const bool whole = p.computed == job.tokens;
      const int ready = whole ? kernels::BlocksFor(p.computed, kBlockSize) : p.computed / kBlockSize;
      if (ready > job.sent) job.pair->AddBlocks(p.id, std::exchange(job.sent, ready), ready);
      if (whole) job.pair->Commit(p.id, job.commit);
    }
  }

  void OnSent(const kvtransfer::Sender::End& end) {
    prefill_.Post([this, id = end.lease_id](Engine& engine) {
      engine.Cancel(id);
      jobs_.erase(id);
    });
  }

  void OnReceived(const kvtransfer::Receiver::End& end) {
    decode_.Post([this, end](Engine& engine) {
      awaiting_.erase(end.lease_id);
      absl::Status status = end.status;
      if (status.ok()) status = engine.Activate(end.lease_id, end.commit.first_tokens(0).token_id());
      if (status.ok()) return;
      engine.Cancel(end.lease_id);
      clients_.Fail(end.lease_id, status);
    });
  }

  Clients clients_;
  const std::shared_ptr<kvtransfer::FaultState> faults_ = std::make_shared<kvtransfer::FaultState>();
  // Of the prefill engine's thread.
  std::map<uint64_t, Job> jobs_;
  std::set<uint64_t> cancelled_;
  // Of the decode engine's.
  std::set<uint64_t> awaiting_;
  EngineHost prefill_, decode_;
  std::vector<std::unique_ptr<InMemoryPair>> pairs_;  // of the test's thread; none goes before the end
};

EngineRequest Request(int which) {
  static constexpr int kLengths[] = {1, kBlockSize - 1, kBlockSize, kBlockSize + 1, 23, 24, 25, 40, 63, 100};
  EngineRequest r;
  const int vocab = Setup().file->config().vocab;
  r.tokens = engine::RandomTokens(kLengths[which % 10], vocab, 70 + uint64_t(which) / 2);  // pairs share a prefix
  r.num_prompt_tokens = int(r.tokens.size());
  r.sampling.max_tokens = 3 + which % 7 * 4;
  r.sampling.logprobs = 3;
  r.sampling.temperature = which % 2 == 0 ? 0.0f : 0.9f;
  r.sampling.seed = uint64_t(which);
  return r;
}

Answer Alone(EngineRequest request) {
  request.id = 1;
  const auto engine = NewEngine(64);
  EXPECT_TRUE(engine->Add(request).ok());
  engine::Answers answers;
  while (engine->has_work()) {
    const auto outputs = engine->Step();
    EXPECT_TRUE(outputs.ok()) << outputs.status();
    if (!outputs.ok()) break;
    for (const engine::TokenOutput& out : *outputs) engine::Take(out, answers);
  }
  return answers[{1, 0}];
}

class SplitInMemory : public testing::TestWithParam<int> {};

// Waves of requests; in each a few are cancelled at some moment, and those that a fault ended are asked again.
TEST_P(SplitInMemory, EveryAnswerIsThatOfOneEngine) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 rng(seed);
  std::map<int, Answer> alone;
  for (int which = 0; which < 20; ++which) alone[which] = Alone(Request(which));
  Split split(GetParam(), {.corrupt = {3, 40}, .fail = {70, 150}});
  uint64_t next_id = 1;
  int answered = 0, cancelled = 0, failed = 0;
  for (int wave = 0; wave < 6; ++wave) {
    std::vector<int> open;
    for (int which = 0; which < 20; ++which) open.push_back(which);
    for (int attempt = 0; !open.empty(); ++attempt) {
      ASSERT_LT(attempt, 20) << "the faults do not end";
      std::map<uint64_t, int> asked;
      std::set<uint64_t> gone;
      for (const int which : open) {
        EngineRequest request = Request(which);
        asked[request.id = next_id++] = which;
        split.Start(std::move(request));
        if (rng() % 4 == 0) {
          const auto victim = std::next(asked.begin(), long(rng() % asked.size()));
          absl::SleepFor(absl::Microseconds(rng() % 2000));
          split.Cancel(victim->first);
          gone.insert(victim->first);
        }
        if (asked.size() % 5 == 0) {  // so that both pools hold what is alive
          for (const auto& [id, ignored] : asked) (void)split.clients().Await(id);
        }
      }
      open.clear();
      for (const auto& [id, which] : asked) {
        const absl::Status end = split.clients().Await(id);
        ASSERT_NE(end.code(), absl::StatusCode::kDeadlineExceeded) << end;
        if (end.ok()) {
          ++answered;
          EXPECT_TRUE(split.clients().AnswerOf(id) == alone[which]) << "request " << which << " as " << id;
        } else if (gone.contains(id)) {
          ++cancelled;
        } else {
          ++failed;
          open.push_back(which);
        }
      }
      if (!open.empty()) split.NewEpoch();
    }
  }
  EXPECT_TRUE(split.AwaitBaseline());
  EXPECT_GT(answered, 60);
  EXPECT_GT(cancelled, 5);
  EXPECT_GE(failed, 2);
  EXPECT_EQ(split.injected(), 4u) << "every fault must have happened";
}

INSTANTIATE_TEST_SUITE_P(StepsAhead, SplitInMemory, testing::Values(1, 2));

TEST(SplitInMemoryBinary, LinksNoGrpc) {
  std::set<std::string> libraries;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* to) {
        static_cast<std::set<std::string>*>(to)->insert(info->dlpi_name);
        return 0;
      },
      &libraries);
  EXPECT_GT(libraries.size(), 3u);
  EXPECT_THAT(libraries, testing::Not(testing::Contains(testing::HasSubstr("grpc"))));
}

}  // namespace
}  // namespace sluice
