// An engine of several ranks against one of one rank: the same answers bit for bit, with preemption, drafts, choices
// that fork and cached prefixes on the way; and the end of an engine whose rank is lost.
#include <sys/mman.h>

#include <optional>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/engine.h"
#include "engine/parallel/follower.h"
#include "engine/parallel/shared_memory_collective.h"
#include "engine/speculation/prompt_lookup_drafter.h"
#include "engine/testing/answers.h"
#include "engine/testing/tiny_setup.h"
#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"

namespace sluice::engine {
namespace {

constexpr size_t kBuffer = 1 << 16;

EngineOptions Options(int num_blocks) {
  EngineOptions o;
  o.block_size = 16;
  o.num_blocks = num_blocks;
  o.max_context = 256;
  o.prefix_caching = true;
  o.scheduler = {.max_step_tokens = 48, .max_step_seqs = 8, .max_step_logits = 64, .max_drafts = 4};
  o.new_drafter = [] {
    return std::make_unique<PromptLookupDrafter>(PromptLookupOptions{.min_ngram = 1, .row_cost = 0.01});
  };
  return o;
}

std::vector<EngineRequest> Requests(int vocab) {
  std::vector<EngineRequest> requests;
  const std::vector<int32_t> shared = RandomTokens(40, vocab, 99);
  for (int i = 0; i < 7; ++i) {
    EngineRequest r;
    r.id = uint64_t(i) + 1;
    r.tokens = i % 2 == 0 ? shared : std::vector<int32_t>{};
    const std::vector<int32_t> own = RandomTokens(3 + i * 11, vocab, uint32_t(i));
    r.tokens.insert(r.tokens.end(), own.begin(), own.end());
    r.tokens.insert(r.tokens.end(), own.begin(), own.begin() + 3);  // something to look up
    r.num_prompt_tokens = int(r.tokens.size());
    r.n = i == 2 ? 3 : 1;
    r.may_wait = true;
    r.headroom_tokens = 1;
    r.sampling.max_tokens = 20;
    r.sampling.logprobs = 2;
    r.sampling.temperature = i % 3 == 0 ? 0.0f : 0.9f;
    r.sampling.seed = uint64_t(i) + 5;
    requests.push_back(r);
  }
  return requests;
}

Answers RunAll(Engine& engine, int vocab) {
  Answers answers;
  std::vector<EngineRequest> waiting = Requests(vocab);
  Stepper stepper(&engine, 2);
  size_t next = 0;
  while (next < waiting.size() || stepper.busy()) {
    if (next < waiting.size() && engine.Add(waiting[next]).ok()) ++next;
    for (const TokenOutput& out : stepper.Step()) Take(out, answers);
  }
  return answers;
}

class Ranks {
 public:
  Ranks(const TinySetup& setup, const kernels::KvLayout& layout, kernels::CpuOptions options, int ranks, int num_blocks)
      : collective_bytes_((SharedMemoryCollective::BytesFor(ranks, kBuffer) + 4095) / 4096 * 4096),
        bytes_(collective_bytes_ + kernels::CpuKvPoolBytes(layout, num_blocks)),
        memory_(mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)),
        leader_(data(), 0, ranks, kBuffer),
        ended_(size_t(ranks)) {
    for (int rank = 1; rank < ranks; ++rank) {
      threads_.emplace_back([=, this, &setup] {
        SharedMemoryCollective collective(data(), rank, ranks, kBuffer);
        const auto backend = kernels::NewCpuBackend(options);
        auto follower = Follower::Create(*setup.file, **backend, Options(num_blocks), &collective, kv_memory());
        ended_[size_t(rank)] = follower.ok() ? (*follower)->Run() : follower.status();
      });
    }
  }
  ~Ranks() { munmap(memory_, bytes_); }

  SharedMemoryCollective* leader() { return &leader_; }
  std::byte* kv_memory() const { return data() + collective_bytes_; }
  const std::vector<absl::Status>& Join() {
    for (std::thread& thread : threads_) thread.join();
    return ended_;
  }

 private:
  std::byte* data() const { return static_cast<std::byte*>(memory_); }

  const size_t collective_bytes_, bytes_;
  void* const memory_;
  SharedMemoryCollective leader_;
  std::vector<absl::Status> ended_;  // [ranks]
  std::vector<std::thread> threads_;
};

TEST(Followers, AnswersAreThoseOfOneRank) {
  const TinySetup setup = MakeTinySetup({});
  ASSERT_TRUE(setup.file);
  const int vocab = setup.file->config().vocab;
  for (const char* mode : {"f32", "int8"}) {
    const kernels::CpuOptions cpu{.threads = 1, .compute = *kernels::CpuComputeFromName(mode)};
    const auto backend = kernels::NewCpuBackend(cpu);
    for (const int num_blocks : {200, 24}) {  // the second is scarce
      auto whole = Engine::Create(*setup.file, **backend, Options(num_blocks));
      ASSERT_TRUE(whole.ok()) << whole.status();
      const Answers expected = RunAll(**whole, vocab);
      ASSERT_EQ(expected.size(), 9u);
      for (const int ranks : {2, 3}) {
        SCOPED_TRACE(absl::StrCat(mode, ", ", num_blocks, " blocks, ", ranks, " ranks"));
        Ranks others(setup, (*whole)->kv_layout(), cpu, ranks, num_blocks);
        EngineOptions options = Options(num_blocks);
        options.collective = others.leader();
        options.kv_memory = others.kv_memory();
        auto engine = Engine::Create(*setup.file, **backend, options);
        ASSERT_TRUE(engine.ok()) << engine.status();
        EXPECT_TRUE(RunAll(**engine, vocab) == expected);
        EXPECT_EQ((*engine)->stats().preemptions > 0, num_blocks == 24) << "what the setting is for";
        EXPECT_GT((*engine)->stats().block_copies, 0u);
        engine->reset();
        for (const absl::Status& ended : others.Join()) EXPECT_TRUE(ended.ok()) << ended;
      }
    }
  }
}

TEST(Followers, ALostRankEndsTheEngineAndTheOthers) {
  const TinySetup setup = MakeTinySetup({});
  ASSERT_TRUE(setup.file);
  const kernels::CpuOptions cpu{.threads = 1, .compute = kernels::CpuCompute::kInt8};
  const auto backend = kernels::NewCpuBackend(cpu);
  auto whole = Engine::Create(*setup.file, **backend, Options(100));
  ASSERT_TRUE(whole.ok()) << whole.status();
  Ranks others(setup, (*whole)->kv_layout(), cpu, 3, 100);
  EngineOptions options = Options(100);
  options.collective = others.leader();
  options.kv_memory = others.kv_memory();
  auto engine = Engine::Create(*setup.file, **backend, options);
  ASSERT_TRUE(engine.ok()) << engine.status();
  ASSERT_TRUE((*engine)->Add(Requests(setup.file->config().vocab)[1]).ok());
  others.leader()->Abort();  // as whoever notices the loss does
  EXPECT_EQ((*engine)->Step().status().code(), absl::StatusCode::kUnavailable);
  engine->reset();
  const std::vector<absl::Status>& ended = others.Join();
  for (size_t rank = 1; rank < ended.size(); ++rank) EXPECT_EQ(ended[rank].code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace sluice::engine
