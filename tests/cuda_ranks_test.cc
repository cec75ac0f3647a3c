// Ranks of the CUDA backend over NCCL, each a thread with a device of its own on the test runtime: the bits of one
// rank, with graphs and without, for heads and columns that don't divide; whole engines that preempt, fork, draft and
// reuse prefixes; and what becomes of a rank that fails or stands still.
//
// The plugin is loaded as a worker loads it.
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <numeric>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "engine/model/decoder.h"
#include "engine/parallel/follower.h"
#include "engine/parallel/shared_memory_collective.h"
#include "engine/parallel/tensor_split.h"
#include "engine/speculation/prompt_lookup_drafter.h"
#include "engine/testing/answers.h"
#include "engine/testing/tiny_setup.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/plugin/cuda_plugin.h"

namespace sluice::engine {
namespace {

using testing::HasSubstr;

constexpr int kBlock = 16, kDevices = 4;
constexpr size_t kBuffer = 1 << 16;

// Before anything looks.
[[maybe_unused]] const bool devices = setenv("HOST_CUDA_DEVICES", std::to_string(kDevices).c_str(), 1) == 0;

absl::StatusOr<std::unique_ptr<kernels::Backend>> OpenCuda(int device, bool graphs = true, double timeout = 60) {
  const auto plugin = kernels::LoadCudaPlugin(SLUICE_CUDA_PLUGIN);
  if (!plugin.ok()) return plugin.status();
  return (*plugin)->new_backend({.device = device, .graphs = graphs, .rank_timeout_seconds = timeout});
}

// Runs rank(collective) for each of `ranks`, as threads; one that fails ends the others, as its process's end does.
void RunRanks(int ranks, const std::function<absl::Status(SharedMemoryCollective&)>& rank) {
  const size_t bytes = SharedMemoryCollective::BytesFor(ranks, kBuffer);
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      SharedMemoryCollective collective(static_cast<std::byte*>(memory), r, ranks, kBuffer);
      if (!rank(collective).ok()) collective.Abort();
    });
  }
  for (std::thread& thread : threads) thread.join();
  munmap(memory, bytes);
}

template <class T>
bool SameBits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

struct Computed {
  std::vector<float> logits, maxima;          // [rows][vocab], [rows][blocks of logits]
  std::vector<std::vector<std::byte>> heads;  // [KV heads of the rank] all layers and blocks
  absl::Status status;
};

// Two sequences of `tokens`, in a long chunk, a short one, then token by token; the second one's blocks are the higher
// ones.
Computed RunDecoder(const ModelFile& file, const kernels::Backend& backend, const std::vector<int32_t>& tokens,
                    const DecoderRank& rank, bool by_layer = false) {
  Computed run;
  auto made = Decoder::Create(file, backend, {.max_step_tokens = 64, .max_step_seqs = 8, .max_context = 512}, "", rank);
  if (!made.ok()) return run.status = made.status(), run;
  Decoder& decoder = **made;
  const int n = int(tokens.size()), blocks = kernels::BlocksFor(n, kBlock), vocab = decoder.vocab();
  auto kv = backend.NewKvPool(decoder.kv_layout(kBlock), 2 * blocks);
  if (!kv.ok()) return run.status = kv.status(), run;
  std::vector<int32_t> table(size_t(2 * blocks));
  std::iota(table.begin(), table.end(), 0);
  const int logit_blocks = kernels::NumLogitBlocks(vocab);
  run.logits.resize(size_t(2 * n * vocab));
  run.maxima.resize(size_t(2 * n * logit_blocks));
  for (int begin = 0, row = 0; begin < n && run.status.ok();) {
    const int count = std::min(n - begin, begin == 0 ? 25 : begin == 25 ? 6 : 1);
    std::vector<int32_t> batch_tokens, logit_rows(size_t(2 * count));
    for (int seq = 0; seq < 2; ++seq) {
      batch_tokens.insert(batch_tokens.end(), &tokens[size_t(begin)], &tokens[size_t(begin)] + count);
    }
    std::iota(logit_rows.begin(), logit_rows.end(), 0);
    const int32_t row_begin[] = {0, count, 2 * count}, context_len[] = {begin + count, begin + count};
    // Rank 0 hears of layers in some decode steps: the others are told not to record those either.
    const bool slow = by_layer && begin % 2 == 1;
    run.status = decoder.Forward({batch_tokens, row_begin, context_len, table, blocks, logit_rows}, **kv,
                                 run.logits.data() + size_t(row) * size_t(vocab),
                                 run.maxima.data() + size_t(row) * size_t(logit_blocks),
                                 slow && rank.rank == 0 ? [](int) {} : std::function<void(int)>(), !slow);
    begin += count;
    row += 2 * count;
  }
  if (!run.status.ok()) return run;
  const kernels::KvLayout& layout = (*kv)->layout();
  for (int head = 0; head < layout.num_kv_heads; ++head) {
    const kernels::KvSlice slice{0, layout.num_layers, head, head + 1, table};
    run.heads.emplace_back(kernels::SliceBytes(slice, layout));
    run.status.Update((*kv)->device()->Gather(slice, run.heads.back()).status());
  }
  return run;
}

std::vector<Computed> RunDecoders(const ModelFile& file, const std::vector<int32_t>& tokens, int ranks, bool graphs,
                                  bool by_layer) {
  std::vector<Computed> runs(static_cast<size_t>(ranks));
  RunRanks(ranks, [&](SharedMemoryCollective& collective) {
    const auto backend = OpenCuda(collective.rank(), graphs);
    Computed& run = runs[size_t(collective.rank())];
    if (!backend.ok()) return run.status = backend.status();
    run = RunDecoder(file, **backend, tokens, {collective.rank(), ranks, &collective}, by_layer);
    return run.status;
  });
  return runs;
}

struct Shape {
  int heads, kv_heads, ffn;
  std::vector<int> ranks;
};

TEST(CudaRanks, HaveTheBitsOfOne) {
  // 3 heads among 2; more ranks than KV heads; columns of the MLP that no vector divides (13, 13, 14); even ones.
  const std::vector<Shape> shapes = {{6, 3, 416, {2, 3}}, {4, 1, 96, {2, 3}}, {4, 2, 40, {3}}, {4, 4, 416, {1, 4}}};
  for (const Shape& shape : shapes) {
    const TinySetup setup = MakeTinySetup({.layers = 2,
                                           .heads = shape.heads,
                                           .kv_heads = shape.kv_heads,
                                           .head_dim = 64,
                                           .ffn = shape.ffn,
                                           .types = {kernels::DType::kBF16, kernels::DType::kF32}});
    ASSERT_TRUE(setup.file);
    const std::vector<int32_t> tokens = RandomTokens(34, setup.file->config().vocab, 3);
    const auto backend = OpenCuda(0);
    ASSERT_TRUE(backend.ok()) << backend.status();
    const Computed whole = RunDecoder(*setup.file, **backend, tokens, {});
    ASSERT_TRUE(whole.status.ok()) << whole.status;
    for (const int ranks : shape.ranks) {
      for (const auto& [graphs, by_layer] : {std::pair(true, false), {false, false}, {true, true}}) {
        if ((!graphs || by_layer) && shape.ffn != 416) continue;
        SCOPED_TRACE(absl::StrCat(shape.heads, "/", shape.kv_heads, " heads, ffn ", shape.ffn, ", ", ranks, " ranks",
                                  graphs ? ", graphs" : "", by_layer ? ", by layer" : ""));
        const auto split = TensorSplit::Of(setup.file->config(), ranks);
        ASSERT_TRUE(split.ok()) << split.status();
        const std::vector<Computed> runs = RunDecoders(*setup.file, tokens, ranks, graphs, by_layer);
        for (const Computed& run : runs) ASSERT_TRUE(run.status.ok()) << run.status;
        EXPECT_TRUE(SameBits(runs[0].logits, whole.logits));
        EXPECT_TRUE(SameBits(runs[0].maxima, whole.maxima));
        for (int rank = 0; rank < ranks; ++rank) {
          const Part kept = split->kv_heads(rank);
          ASSERT_EQ(int64_t(runs[size_t(rank)].heads.size()), kept.size());
          for (int64_t h = kept.begin; h < kept.end; ++h) {
            EXPECT_TRUE(SameBits(runs[size_t(rank)].heads[size_t(h - kept.begin)], whole.heads[size_t(h)]))
                << "KV head " << h << " on rank " << rank;
          }
        }
      }
    }
  }
}

EngineOptions Options(int num_blocks) {
  EngineOptions o;
  o.block_size = kBlock;
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
  for (int i = 0; i < 4; ++i) {
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
    r.sampling.max_tokens = 12;
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

TinySetup SmallModel() {
  return MakeTinySetup({.layers = 2,
                        .heads = 6,
                        .kv_heads = 3,
                        .head_dim = 64,
                        .ffn = 160,
                        .types = {kernels::DType::kBF16, kernels::DType::kF32}});
}

// An engine of 2 ranks; the other one's end.
absl::Status WithFollower(const TinySetup& setup, const EngineOptions& options, double timeout,
                          const std::function<absl::Status(Engine&, SharedMemoryCollective&)>& leader) {
  absl::Status followed;
  RunRanks(2, [&](SharedMemoryCollective& collective) -> absl::Status {
    const auto backend = OpenCuda(collective.rank(), true, timeout);
    if (!backend.ok()) return backend.status();
    if (collective.rank() == 1) {
      auto follower = Follower::Create(*setup.file, **backend, options, &collective, nullptr);
      return followed = follower.ok() ? (*follower)->Run() : follower.status();
    }
    EngineOptions own = options;
    own.collective = &collective;
    auto engine = Engine::Create(*setup.file, **backend, own);
    EXPECT_TRUE(engine.ok()) << engine.status();
    return engine.ok() ? leader(**engine, collective) : engine.status();
  });
  return followed;
}

TEST(CudaRanks, EnginesAnswerAsOne) {
  const TinySetup setup = SmallModel();
  ASSERT_TRUE(setup.file);
  const int vocab = setup.file->config().vocab;
  for (const int num_blocks : {200, 10}) {  // the second is scarce
    SCOPED_TRACE(num_blocks);
    const auto backend = OpenCuda(0);
    ASSERT_TRUE(backend.ok()) << backend.status();
    auto whole = Engine::Create(*setup.file, **backend, Options(num_blocks));
    ASSERT_TRUE(whole.ok()) << whole.status();
    const Answers expected = RunAll(**whole, vocab);
    ASSERT_EQ(expected.size(), 6u);
    const absl::Status followed =
        WithFollower(setup, Options(num_blocks), 60, [&](Engine& engine, SharedMemoryCollective&) {
          EXPECT_TRUE(RunAll(engine, vocab) == expected);
          EXPECT_EQ(engine.stats().preemptions > 0, num_blocks == 10) << "what the setting is for";
          EXPECT_GT(engine.stats().block_copies, 0u) << "each rank copies its own";
          return absl::OkStatus();
        });
    EXPECT_TRUE(followed.ok()) << followed;
  }
}

// 1 KV head on rank 0, 2 on rank 1, whose pool therefore has fewer blocks.
TEST(CudaRanks, HaveThePoolOfTheSmallest) {
  const TinySetup setup = SmallModel();
  ASSERT_TRUE(setup.file);
  EngineOptions options = Options(0);
  options.max_kv_bytes = 1 << 20;
  const int64_t head_bytes = int64_t(2) * 2 * kBlock * 64 * 2;  // of a block: layers, K and V, slots, dims, bytes
  const absl::Status followed = WithFollower(setup, options, 60, [&](Engine& engine, SharedMemoryCollective&) {
    EXPECT_EQ(engine.stats().blocks_total, (1 << 20) / (2 * head_bytes));
    EXPECT_EQ(engine.kv_layout().num_kv_heads, 3);
    return absl::OkStatus();
  });
  EXPECT_TRUE(followed.ok()) << followed;
}

// NCCL finds nothing: over NVLink it would see no death either.
TEST(CudaRanks, ARankThatIsKnownToBeLostEndsTheStep) {
  const TinySetup setup = SmallModel();
  ASSERT_TRUE(setup.file);
  setenv("HOST_CUDA_NCCL_STALL", "1:12:100000000", 1);
  const auto begun = absl::Now();
  absl::Status step;
  const absl::Status followed =
      WithFollower(setup, Options(100), 600, [&](Engine& engine, SharedMemoryCollective& collective) {
        EXPECT_TRUE(engine.Add(Requests(setup.file->config().vocab)[3]).ok());
        std::thread watch([&] {
          absl::SleepFor(absl::Seconds(1));
          collective.Abort();  // as whoever notices the end of the rank's process does
        });
        while (engine.has_work() && step.ok()) step = engine.Step().status();
        watch.join();
        return step;
      });
  unsetenv("HOST_CUDA_NCCL_STALL");
  EXPECT_EQ(step.code(), absl::StatusCode::kUnavailable) << step;
  EXPECT_THAT(absl::StrCat(step.message(), followed.message()), HasSubstr("a rank of this instance was lost"));
  EXPECT_EQ(followed.code(), absl::StatusCode::kUnavailable) << followed;
  EXPECT_LT(absl::Now() - begun, absl::Seconds(20));
}

// The time-out is NCCL's alone: no rank is known to be lost.
TEST(CudaRanks, ARankThatStandsStillEndsTheStep) {
  const TinySetup setup = SmallModel();
  ASSERT_TRUE(setup.file);
  setenv("HOST_CUDA_NCCL_STALL", "1:12:100000000", 1);
  absl::Status step;
  const absl::Status followed = WithFollower(setup, Options(100), 2, [&](Engine& engine, SharedMemoryCollective&) {
    EXPECT_TRUE(engine.Add(Requests(setup.file->config().vocab)[3]).ok());
    while (engine.has_work() && step.ok()) step = engine.Step().status();
    return step;
  });
  unsetenv("HOST_CUDA_NCCL_STALL");
  EXPECT_FALSE(step.ok());
  EXPECT_THAT(std::string(step.message()), HasSubstr("tensor parallelism, rank 0 of 2: "));
  EXPECT_FALSE(followed.ok());
}

TEST(CudaRanks, WhatIsMissingIsSaid) {
  const TinySetup setup = SmallModel();
  ASSERT_TRUE(setup.file);
  // A rank that never comes.
  RunRanks(1, [&](SharedMemoryCollective& collective) {
    class OfTwo final : public kernels::Collective {
     public:
      int rank() const override { return 0; }
      int size() const override { return 2; }
      absl::Status Gather(float*, int64_t, int64_t, std::span<const int64_t>, To) override { return absl::OkStatus(); }
    } alone;
    const auto backend = OpenCuda(0, true, 0.3);
    EXPECT_TRUE(backend.ok()) << backend.status();
    EngineOptions options = Options(100);
    options.collective = &alone;
    const auto engine = Engine::Create(*setup.file, **backend, options);
    EXPECT_EQ(engine.status().code(), absl::StatusCode::kDeadlineExceeded);
    EXPECT_THAT(std::string(engine.status().message()),
                HasSubstr("tensor parallelism, rank 0 of 2: waited 300ms for the other 1 ranks to come"));
    return absl::Status(collective.size() == 1 ? absl::OkStatus() : absl::InternalError(""));
  });
}

}  // namespace
}  // namespace sluice::engine
