// A decoder cut among ranks against the whole one: the same bits, in every arithmetic, for every number of ranks; and
// each rank's K and V are the whole's.
#include <sys/mman.h>

#include <cstring>
#include <numeric>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/model/decoder.h"
#include "engine/parallel/shared_memory_collective.h"
#include "engine/parallel/tensor_split.h"
#include "engine/testing/tiny_setup.h"
#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"

namespace sluice::engine {
namespace {

constexpr int kBlock = 16;
constexpr size_t kBuffer = 1 << 16;

struct Computed {
  std::vector<float> logits;                  // [tokens][vocab]
  std::vector<float> maxima;                  // [tokens][blocks of logits]
  std::vector<std::vector<std::byte>> heads;  // [KV heads] bytes of K and V of all blocks and layers
  absl::Status status;
};

// Two sequences of `tokens`, in chunks; the second one's blocks are the higher ones.
Computed RunRank(const ModelFile& file, const kernels::Backend& backend, const std::vector<int32_t>& tokens,
                 const DecoderRank& rank) {
  Computed run;
  auto made = Decoder::Create(file, backend, {.max_step_tokens = 64, .max_step_seqs = 8, .max_context = 512}, "", rank);
  if (!made.ok()) return run.status = made.status(), run;
  Decoder& decoder = **made;
  const int n = int(tokens.size()), blocks = kernels::BlocksFor(n, kBlock), vocab = decoder.vocab();
  const kernels::KvLayout layout = decoder.kv_layout(kBlock);
  auto kv = backend.NewKvPool(layout, 2 * blocks);
  if (!kv.ok()) return run.status = kv.status(), run;
  std::vector<int32_t> table(size_t(2 * blocks));
  std::iota(table.begin(), table.end(), 0);
  const int logit_blocks = kernels::NumLogitBlocks(vocab);
  run.logits.resize(size_t(2 * n * vocab));
  run.maxima.resize(size_t(2 * n * logit_blocks));
  // A long chunk, a short one, then one token at a time.
  for (int begin = 0, row = 0; begin < n && run.status.ok();) {
    const int count = std::min(n - begin, begin == 0 ? 25 : begin == 25 ? 6 : 1);
    std::vector<int32_t> batch_tokens, logit_rows(size_t(2 * count));
    for (int seq = 0; seq < 2; ++seq)
      batch_tokens.insert(batch_tokens.end(), &tokens[size_t(begin)], &tokens[size_t(begin)] + count);
    std::iota(logit_rows.begin(), logit_rows.end(), 0);
    const int32_t row_begin[] = {0, count, 2 * count}, context_len[] = {begin + count, begin + count};
    run.status = decoder.Forward({batch_tokens, row_begin, context_len, table, blocks, logit_rows}, **kv,
                                 run.logits.data() + size_t(row) * size_t(vocab),
                                 run.maxima.data() + size_t(row) * size_t(logit_blocks));
    begin += count;
    row += 2 * count;
  }
  for (int head = 0; head < layout.num_kv_heads; ++head) {
    std::vector<std::byte>& bytes = run.heads.emplace_back();
    for (int layer = 0; layer < layout.num_layers; ++layer) {
      const auto* base = static_cast<const std::byte*>((*kv)->layer_data(layer));
      for (int block = 0; block < 2 * blocks; ++block) {
        for (const int is_v : {0, 1}) {
          const std::byte* at = base + layout.offset(block, is_v, head, 0);
          bytes.insert(bytes.end(), at, at + layout.head_bytes());
        }
      }
    }
  }
  return run;
}

std::vector<Computed> RunRanks(const ModelFile& file, const kernels::CpuOptions& options,
                               const std::vector<int32_t>& tokens, int ranks) {
  const size_t bytes = SharedMemoryCollective::BytesFor(ranks, kBuffer);
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  EXPECT_NE(memory, MAP_FAILED);
  std::vector<Computed> runs(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      SharedMemoryCollective collective(static_cast<std::byte*>(memory), rank, ranks, kBuffer);
      const auto backend = kernels::NewCpuBackend(options);
      runs[size_t(rank)] = RunRank(file, **backend, tokens, {rank, ranks, &collective});
      if (!runs[size_t(rank)].status.ok()) collective.Abort();
    });
  }
  for (std::thread& thread : threads) thread.join();
  munmap(memory, bytes);
  return runs;
}

template <class T>
bool SameBits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

struct Shape {
  int heads, kv_heads;
};

TEST(TensorParallel, HasTheBitsOfOneRank) {
  const char* const modes[] = {"f32", "int8", "native", "bf16"};
  for (const Shape shape : {Shape{9, 3}, Shape{8, 1}, Shape{6, 2}, Shape{8, 8}}) {
    const TinySetup setup =
        MakeTinySetup({.layers = 2, .heads = shape.heads, .kv_heads = shape.kv_heads, .head_dim = 32, .ffn = 416});
    ASSERT_TRUE(setup.file);
    const std::vector<int32_t> tokens = RandomTokens(40, setup.file->config().vocab, 3);
    for (const char* mode : modes) {
      const kernels::CpuOptions options{.threads = 1, .compute = *kernels::CpuComputeFromName(mode)};
      const auto backend = kernels::NewCpuBackend(options);
      const Computed whole = RunRank(*setup.file, **backend, tokens, {});
      ASSERT_TRUE(whole.status.ok()) << whole.status;
      for (int ranks = 1; ranks <= 4; ++ranks) {
        SCOPED_TRACE(absl::StrCat(mode, ", ", shape.heads, "/", shape.kv_heads, " heads, ", ranks, " ranks"));
        const auto split = TensorSplit::Of(setup.file->config(), ranks);
        ASSERT_TRUE(split.ok()) << split.status();
        const std::vector<Computed> runs = RunRanks(*setup.file, options, tokens, ranks);
        for (const Computed& run : runs) ASSERT_TRUE(run.status.ok()) << run.status;
        EXPECT_TRUE(SameBits(runs[0].logits, whole.logits));
        EXPECT_TRUE(SameBits(runs[0].maxima, whole.maxima));
        for (int rank = 0; rank < ranks; ++rank) {
          const Part kept = split->kv_heads(rank);
          for (int64_t h = kept.begin; h < kept.end; ++h) {
            EXPECT_TRUE(SameBits(runs[size_t(rank)].heads[size_t(h)], whole.heads[size_t(h)]))
                << "KV head " << h << " on rank " << rank;
          }
        }
      }
    }
  }
}

TEST(TensorParallel, ALostRankEndsTheStep) {
  const TinySetup setup = MakeTinySetup({});
  ASSERT_TRUE(setup.file);
  const std::vector<int32_t> tokens = RandomTokens(20, setup.file->config().vocab, 3);
  const size_t bytes = SharedMemoryCollective::BytesFor(2, kBuffer);
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  SharedMemoryCollective collective(static_cast<std::byte*>(memory), 0, 2, kBuffer);
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    SharedMemoryCollective(static_cast<std::byte*>(memory), 1, 2, kBuffer).Abort();
  });
  const auto backend = kernels::NewCpuBackend({.compute = kernels::CpuCompute::kInt8});
  EXPECT_EQ(RunRank(*setup.file, **backend, tokens, {0, 2, &collective}).status.code(), absl::StatusCode::kUnavailable);
  other.join();
  munmap(memory, bytes);
}

}  // namespace
}  // namespace sluice::engine
