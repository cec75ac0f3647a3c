#include "engine/engine.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "engine/testing/tiny_setup.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice::engine {
namespace {

using testing::HasSubstr;

// Tokens and the bits of all log-probabilities of one answer.
struct Answer {
  std::vector<int32_t> tokens;
  std::vector<uint32_t> bits;
  FinishReason finish = FinishReason::kNone;

  bool operator==(const Answer&) const = default;
};

void Append(const TokenOutput& out, Answer& answer) {
  EXPECT_EQ(out.index, int(answer.tokens.size()));
  EXPECT_EQ(answer.finish, FinishReason::kNone) << "a token after the end";
  answer.tokens.push_back(out.sampled.token);
  answer.bits.push_back(std::bit_cast<uint32_t>(out.sampled.logprob));
  for (const auto& [id, logprob] : out.sampled.top) {
    answer.bits.push_back(uint32_t(id));
    answer.bits.push_back(std::bit_cast<uint32_t>(logprob));
  }
  answer.finish = out.finish;
}

std::unique_ptr<Engine> MakeEngine(const TinySetup& setup, EngineOptions options) {
  auto engine = Engine::Create(*setup.file, *setup.backend, options);
  EXPECT_TRUE(engine.ok()) << engine.status();
  return engine.ok() ? *std::move(engine) : nullptr;
}

std::map<uint64_t, Answer> RunToTheEnd(Engine& engine) {
  std::map<uint64_t, Answer> answers;
  while (engine.has_work()) {
    auto outputs = engine.Step();
    EXPECT_TRUE(outputs.ok()) << outputs.status();
    if (!outputs.ok()) break;
    for (const TokenOutput& out : *outputs) Append(out, answers[out.id]);
  }
  return answers;
}

// A mix of greedy and sampled requests of odd lengths.
std::vector<EngineRequest> MixedRequests(int count, int vocab) {
  const int lengths[] = {1, 37, 16, 129, 5, 64, 17, 33};
  std::vector<EngineRequest> requests(count);
  for (int i = 0; i < count; ++i) {
    EngineRequest& r = requests[i];
    r.id = 100 + i;
    r.choice = i % 2;
    r.tokens = RandomTokens(lengths[i % 8], vocab, 7 + i);
    r.num_prompt_tokens = int(r.tokens.size());
    r.sampling.max_tokens = 3 + i % 5 * 4;
    r.sampling.logprobs = 3;
    r.sampling.temperature = i % 3 == 0 ? 0.0f : 0.9f;
    r.sampling.top_p = i % 3 == 2 ? 0.8f : 1.0f;
    r.sampling.seed = 1000 + i;
  }
  return requests;
}

TEST(Engine, AnswersDependOnTheRequestAlone) {
  const TinySetup setup = MakeTinySetup({});
  ASSERT_TRUE(setup.file && setup.backend);
  const std::vector<EngineRequest> requests = MixedRequests(8, setup.file->config().vocab);

  std::map<uint64_t, Answer> alone;
  for (const EngineRequest& r : requests) {
    auto engine = MakeEngine(setup, {.num_blocks = 64});
    ASSERT_TRUE(engine->Add(r).ok());
    alone.merge(RunToTheEnd(*engine));
  }
  std::set<std::vector<int32_t>> distinct;
  for (const auto& [id, answer] : alone) distinct.insert(answer.tokens);
  ASSERT_GE(distinct.size(), 6u) << "answers that are all alike test nothing";

  for (int chunk : {1, 7, 16, 512}) {
    for (int batch : {1, 3, 8}) {
      for (bool reversed : {false, true}) {
        SCOPED_TRACE(testing::Message() << "chunk " << chunk << " batch " << batch << " reversed " << reversed);
        auto engine = MakeEngine(
            setup,
            {.num_blocks = 96, .scheduler = {.max_step_tokens = chunk, .max_step_seqs = std::min(chunk, batch)}});
        std::vector<EngineRequest> order = requests;
        if (reversed) std::reverse(order.begin(), order.end());
        for (const EngineRequest& r : order) ASSERT_TRUE(engine->Add(r).ok());
        const std::map<uint64_t, Answer> together = RunToTheEnd(*engine);
        ASSERT_EQ(together.size(), alone.size());
        for (const auto& [id, answer] : together) {
          EXPECT_EQ(answer.tokens, alone[id].tokens) << "request " << id;
          EXPECT_TRUE(answer == alone[id]) << "bits of request " << id;
        }
        EXPECT_EQ(engine->stats().blocks_free, 96);
      }
    }
  }
}

TEST(Engine, AProfileLeavesNoTrace) {
  const TinySetup setup = MakeTinySetup({});
  ASSERT_TRUE(setup.file && setup.backend);
  const std::vector<EngineRequest> requests = MixedRequests(8, setup.file->config().vocab);
  double now = 0;
  EngineOptions options{.num_blocks = 96, .prefix_caching = true, .seconds = [&now] { return now += 1e-4; }};
  std::map<uint64_t, Answer> answers[2];
  for (int profiled = 0; profiled < 2; ++profiled) {
    auto engine = MakeEngine(setup, options);
    if (profiled == 1) {
      const auto profile = engine->Profile(1);
      ASSERT_TRUE(profile.ok()) << profile.status();
      EXPECT_GT(profile->decode_step_ms, 0);
      EXPECT_GT(profile->prefill_tokens_per_s, 0);
      const EngineStats stats = engine->stats();
      EXPECT_EQ(stats.blocks_free, 96);
      EXPECT_EQ(stats.cached_blocks, 0);
      EXPECT_EQ(stats.steps + stats.rows + uint64_t(stats.bytes_to_host), 0u);
    }
    for (const EngineRequest& r : requests) ASSERT_TRUE(engine->Add(r).ok());
    answers[profiled] = RunToTheEnd(*engine);
  }
  EXPECT_TRUE(answers[0] == answers[1]);
}

TEST(Engine, AnswersDoNotDependOnTheNumberOfThreads) {
  const TinySetup one = MakeTinySetup({.seed = 9}, 1), three = MakeTinySetup({.seed = 9}, 3);
  ASSERT_TRUE(one.file && one.backend && three.file && three.backend);
  std::map<uint64_t, Answer> answers[2];
  for (int i = 0; i < 2; ++i) {
    auto engine = MakeEngine(i == 0 ? one : three, {.num_blocks = 96});
    for (const EngineRequest& r : MixedRequests(8, one.file->config().vocab)) ASSERT_TRUE(engine->Add(r).ok());
    answers[i] = RunToTheEnd(*engine);
  }
  EXPECT_TRUE(answers[0] == answers[1]);
}

TEST(Engine, AReplayGivesTheRestOfTheAnswer) {
  const TinySetup setup = MakeTinySetup({.seed = 4});
  ASSERT_TRUE(setup.file && setup.backend);
  EngineRequest request = MixedRequests(2, setup.file->config().vocab)[1];
  request.sampling.max_tokens = 12;
  auto engine = MakeEngine(setup, {.num_blocks = 64});
  ASSERT_TRUE(engine->Add(request).ok());
  const Answer whole = RunToTheEnd(*engine)[request.id];
  ASSERT_EQ(whole.tokens.size(), 12u);
  for (int cut : {1, 5, 11}) {
    EngineRequest replay = request;
    replay.tokens.insert(replay.tokens.end(), whole.tokens.begin(), whole.tokens.begin() + cut);
    ASSERT_TRUE(engine->Add(replay).ok());
    std::vector<int32_t> rest;
    while (engine->has_work()) {
      const auto outputs = engine->Step();
      ASSERT_TRUE(outputs.ok());
      for (const TokenOutput& out : *outputs) {
        EXPECT_EQ(out.index, cut + int(rest.size()));
        rest.push_back(out.sampled.token);
      }
    }
    EXPECT_EQ(rest, std::vector<int32_t>(whole.tokens.begin() + cut, whole.tokens.end()));
  }
}

TEST(Engine, CancelInEveryPhaseFreesTheBlocks) {
  const TinySetup setup = MakeTinySetup({.layers = 1});
  ASSERT_TRUE(setup.file && setup.backend);
  EngineRequest request;
  request.id = 5;
  request.tokens = RandomTokens(40, setup.file->config().vocab, 1);
  request.num_prompt_tokens = 40;
  request.sampling.max_tokens = 6;
  request.sampling.ignore_eos = true;
  // 3 steps of prompt (the third samples), then 5 of decoding: cancel before each of them and after the last.
  for (int steps = 0; steps <= 8; ++steps) {
    auto engine = MakeEngine(setup, {.num_blocks = 8, .scheduler = {.max_step_tokens = 16, .max_step_seqs = 4}});
    ASSERT_TRUE(engine->Add(request).ok());
    EXPECT_EQ(engine->stats().blocks_free, 5);
    for (int i = 0; i < steps; ++i) ASSERT_TRUE(engine->Step().ok());
    EXPECT_EQ(engine->stats().running, steps > 0 && steps < 8);
    EXPECT_EQ(engine->Cancel(5), steps < 8);
    EXPECT_EQ(engine->stats().blocks_free, 8);
    EXPECT_FALSE(engine->has_work());
    const auto after = engine->Step();
    ASSERT_TRUE(after.ok());
    EXPECT_TRUE(after->empty());
  }
}

TEST(Engine, NotNowThenNowAndNever) {
  const TinySetup setup = MakeTinySetup({.layers = 1});
  ASSERT_TRUE(setup.file && setup.backend);
  auto engine = MakeEngine(setup, {.num_blocks = 4});
  EngineRequest request;
  request.tokens = RandomTokens(30, setup.file->config().vocab, 1);
  request.num_prompt_tokens = 30;
  request.sampling.max_tokens = 4;
  request.id = 1;
  ASSERT_TRUE(engine->Add(request).ok());
  request.id = 2;
  EXPECT_EQ(engine->Add(request).code(), absl::StatusCode::kResourceExhausted);
  RunToTheEnd(*engine);
  EXPECT_TRUE(engine->Add(request).ok());
  RunToTheEnd(*engine);
  request.sampling.max_tokens = 35;  // 65 tokens, 5 blocks
  EXPECT_EQ(engine->Add(request).code(), absl::StatusCode::kFailedPrecondition);
  request.sampling.max_tokens = engine->context_length();
  EXPECT_EQ(engine->Add(request).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(engine->stats().blocks_free, 4);
}

TEST(Engine, KvBytesThatHoldNoFullContextAreRefused) {
  const TinySetup setup = MakeTinySetup({});
  ASSERT_TRUE(setup.file && setup.backend);
  const absl::Status small = Engine::Create(*setup.file, *setup.backend, {.max_kv_bytes = 1 << 20}).status();
  EXPECT_EQ(small.code(), absl::StatusCode::kResourceExhausted);
  // 2,048 tokens x 2 layers x K and V x 3 heads x 32 x 4 bytes
  EXPECT_THAT(std::string(small.message()), HasSubstr("3145728 bytes"));
  auto engine = MakeEngine(setup, {.max_kv_bytes = 3145728});
  ASSERT_TRUE(engine);
  EXPECT_EQ(engine->stats().blocks_total, 128);
  EXPECT_TRUE(MakeEngine(setup, {.max_kv_bytes = 1 << 20, .max_context = 512}));
}

TEST(Engine, OptionsThatMakeNoSenseAreRefused) {
  const TinySetup setup = MakeTinySetup({.layers = 1});
  ASSERT_TRUE(setup.file && setup.backend);
  const EngineOptions bad[] = {{.block_size = 0},
                               {.num_blocks = -1},
                               {.max_kv_bytes = 0},
                               {.max_context = -1},
                               {.max_context = 1 << 19},
                               {.scheduler = {.max_step_tokens = 0}},
                               {.scheduler = {.max_step_seqs = 0}}};
  for (const EngineOptions& options : bad) {
    EXPECT_EQ(Engine::Create(*setup.file, *setup.backend, options).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

// Adds, cancels and steps at random. What must hold: refusals only for the right reason, no leak, and everything that
// is not cancelled ends after the right number of tokens.
TEST(Engine, AWindowThatAContextOutgrowsIsRefused) {
  const TinySetup setup = MakeTinySetup({.layers = 1, .window = 64});
  const auto refused = Engine::Create(*setup.file, *setup.backend, {.num_blocks = 64, .max_context = 65});
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("max_context of 64"));
  EXPECT_TRUE(Engine::Create(*setup.file, *setup.backend, {.num_blocks = 64, .max_context = 64}).ok());
}

// Weights packed by this process, found by the next one, and packed into memory give the same answers.
TEST(Engine, PackedWeightsAreTheSameWhereverTheyLie) {
  TinySetup setup = MakeTinySetup({});
  auto int8 = kernels::NewCpuBackend({.compute = kernels::CpuCompute::kInt8});
  ASSERT_TRUE(setup.file && int8.ok());
  setup.backend = *std::move(int8);
  const std::string folder = absl::StrCat(testing::TempDir(), "/packed-engine-", getpid());
  std::map<uint64_t, Answer> answers[3];
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(std::filesystem::exists(folder), i > 0);
    auto engine = MakeEngine(setup, {.num_blocks = 96, .packed_folder = i < 2 ? folder : ""});
    for (const EngineRequest& r : MixedRequests(4, setup.file->config().vocab)) ASSERT_TRUE(engine->Add(r).ok());
    answers[i] = RunToTheEnd(*engine);
  }
  EXPECT_EQ(answers[0].size(), 4u);
  EXPECT_TRUE(answers[0] == answers[2]) << "filled";
  EXPECT_TRUE(answers[1] == answers[2]) << "found";
  size_t packed = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) packed += entry.path().extension() == ".packed";
  EXPECT_EQ(packed, 1u);
  std::filesystem::remove_all(folder);
}

// Guesses `drafts` tokens that are never right and keeps what it is told.
class CostWitness final : public Drafter {
 public:
  explicit CostWitness(int drafts) : drafts_(drafts) {}
  bool active(int) const override { return true; }
  std::vector<int32_t> Propose(std::span<const int32_t> tokens, int limit) override {
    const int count = std::min(limit, int(tokens.size()) % 2 == 0 ? drafts_ : 0);
    return std::vector<int32_t>(size_t(count), tokens[0]);
  }
  void Report(int, int, int) override {}
  void set_row_cost(double row_cost) override { told = row_cost; }

  static inline double told = -1;

 private:
  int drafts_;
};

TEST(Engine, DraftersLearnWhatARowCostsFromTheStepsTimes) {
  // A step takes 2 + 1 per row, by the clock of the test: a row more is a third of the step of one row.
  const TinySetup setup = MakeTinySetup({});
  ASSERT_TRUE(setup.file && setup.backend);
  EngineOptions options{.num_blocks = 64};
  options.scheduler.max_drafts = 3;
  options.scheduler.max_step_logits = options.scheduler.max_step_seqs + 3;
  options.new_drafter = [] { return std::make_unique<CostWitness>(3); };
  options.seconds = [] { return 0.0; };
  auto engine = MakeEngine(setup, options);
  EngineRequest r = MixedRequests(1, setup.file->config().vocab)[0];
  r.sampling.max_tokens = 60;
  ASSERT_TRUE(engine->Add(r).ok());
  while (auto step = engine->Begin()) {
    const size_t rows = step->inputs.tokens.size();
    ASSERT_TRUE(engine->Execute(*step).ok());
    step->execute_seconds = 2.0 + double(rows);
    engine->Commit(std::move(step));
  }
  EXPECT_NEAR(CostWitness::told, 1.0 / 3, 0.02);
  EXPECT_EQ(engine->stats().draft_row_cost, CostWitness::told);
}

TEST(Engine, NothingLeaksUnderRandomOperations) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  const auto below = [&](int n) { return int(random() % uint64_t(n)); };
  const TinySetup setup =
      MakeTinySetup({.layers = 1, .heads = 1, .kv_heads = 1, .head_dim = 32, .ffn = 32, .context = 128});
  ASSERT_TRUE(setup.file && setup.backend);
  constexpr int kBlocks = 60, kBlockSize = 4;
  auto engine = MakeEngine(
      setup,
      {.block_size = kBlockSize, .num_blocks = kBlocks, .scheduler = {.max_step_tokens = 24, .max_step_seqs = 6}});
  const int vocab = setup.file->config().vocab;

  std::map<uint64_t, std::pair<int, int>> live;  // id -> (blocks, tokens still to come at most)
  int held = 0;
  uint64_t next_id = 1, finished = 0, refused = 0;
  for (int i = 0; i < 100000; ++i) {
    const int op = below(10);
    if (op < 2) {
      EngineRequest r;
      r.id = next_id++;
      r.tokens = RandomTokens(1 + below(40), vocab, random());
      r.num_prompt_tokens = 1 + below(int(r.tokens.size()));
      const int given = int(r.tokens.size()) - r.num_prompt_tokens;
      r.sampling.max_tokens = given + 1 + below(12);
      r.sampling.temperature = float(below(2));
      r.sampling.stop_ids = {int32_t(below(vocab)), int32_t(below(vocab))};
      r.sampling.min_tokens = below(r.sampling.max_tokens + 1);
      r.priority = below(3);
      const int blocks = kernels::BlocksFor(r.num_prompt_tokens + r.sampling.max_tokens, kBlockSize);
      const std::pair<int, int> entry{blocks, r.sampling.max_tokens - given};
      const uint64_t id = r.id;
      const absl::Status status = engine->Add(std::move(r));
      if (status.ok()) {
        held += blocks;
        live[id] = entry;
      } else {
        ASSERT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
        ASSERT_GT(blocks, kBlocks - held);
        ++refused;
      }
    } else if (op == 2 && !live.empty()) {
      const auto it = std::next(live.begin(), below(int(live.size())));
      ASSERT_TRUE(engine->Cancel(it->first));
      held -= it->second.first;
      live.erase(it);
    } else {
      const auto outputs = engine->Step();
      ASSERT_TRUE(outputs.ok()) << outputs.status();
      for (const TokenOutput& out : *outputs) {
        const auto it = live.find(out.id);
        ASSERT_NE(it, live.end()) << "a token of a request that is over";
        --it->second.second;
        ASSERT_EQ(out.finish == FinishReason::kLength, it->second.second == 0 && out.finish != FinishReason::kStop);
        if (out.finish == FinishReason::kNone) continue;
        ++finished;
        held -= it->second.first;
        live.erase(it);
      }
    }
    ASSERT_EQ(engine->stats().blocks_free, kBlocks - held);
  }
  while (engine->has_work()) {
    const auto outputs = engine->Step();
    ASSERT_TRUE(outputs.ok()) << outputs.status();
    for (const TokenOutput& out : *outputs) {
      if (out.finish != FinishReason::kNone) live.erase(out.id);
    }
  }
  EXPECT_TRUE(live.empty());
  EXPECT_EQ(engine->stats().blocks_free, kBlocks);
  EXPECT_GT(finished, 1000u);
  EXPECT_GT(refused, 10u);
}

}  // namespace
}  // namespace sluice::engine
