#include "engine/runner/commit.h"

#include <vector>

#include "engine/testing/fake_forward.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice::engine {
namespace {

using testing::ElementsAre;

constexpr int kVocab = 4;
constexpr SequenceLimits kLimits{.block_size = 4, .num_blocks = 40, .max_context = 100, .vocab = kVocab};

EngineRequest Request(uint64_t id, int prompt, SamplingParams sampling) {
  EngineRequest r;
  r.id = id;
  r.tokens.assign(size_t(prompt), 0);
  r.num_prompt_tokens = prompt;
  r.sampling = std::move(sampling);
  return r;
}

// One step that computes all that is missing, with `token` the best of the logits of every row.
class World {
 public:
  explicit World(DrafterFactory drafter = {}) : table(kLimits, {.max_step_logits = 64, .max_drafts = 8}, drafter) {}

  StepOutput Step(int token) {
    StepWork step = MakeStep(++number_, table.scheduler().Plan(), kLimits.block_size);
    table.kv().StepBegun(number_);
    for (const SampleTask& task : step.tasks) {
      const size_t rows = task.targets.size() + (task.samples ? 1 + task.drafts.size() : 0);
      std::vector<float> logits(rows * kVocab, 0.0f);
      for (size_t r = 0; r < rows; ++r) logits[r * kVocab + size_t(token)] = 5.0f;
      step.results.push_back(SampleRows(task, logits, kVocab));
    }
    return Commit(step, table);
  }
  TokenOutput One(int token) {
    StepOutput out = Step(token);
    EXPECT_EQ(out.tokens.size(), 1u);
    return out.tokens.at(0);
  }

  SequenceTable table;

 private:
  uint64_t number_ = 0;
};

TEST(Commit, AppendsTheTokenAndCounts) {
  World w;
  EngineRequest r = Request(9, 3, {.max_tokens = 2});
  r.choice = 4;
  ASSERT_TRUE(w.table.Add(r).ok());
  const TokenOutput first = w.One(2);
  EXPECT_EQ(first.id, 9u);
  EXPECT_EQ(first.choice, 4);
  EXPECT_EQ(first.index, 0);
  EXPECT_EQ(first.sampled.token, 2);
  EXPECT_EQ(first.finish, FinishReason::kNone);
  const Sequence* s = w.table.Find(9);
  EXPECT_THAT(s->tokens, ElementsAre(0, 0, 0, 2));
  EXPECT_EQ(s->computed, 3);
  EXPECT_EQ(s->remaining(), 1);
  const TokenOutput second = w.One(1);
  EXPECT_EQ(second.index, 1);
  EXPECT_EQ(second.finish, FinishReason::kLength);
  EXPECT_TRUE(second.last);
  EXPECT_TRUE(w.table.empty());
}

TEST(Commit, EosStopIdsAndLength) {
  const SamplingParams p{.max_tokens = 3, .eos_ids = {1}, .stop_ids = {2}};
  for (const int end : {1, 2}) {
    for (int before = 0; before < 3; ++before) {  // an end at the last token is an end
      World w;
      ASSERT_TRUE(w.table.Add(Request(1, 1, p)).ok());
      for (int i = 0; i < before; ++i) EXPECT_EQ(w.One(0).finish, FinishReason::kNone);
      EXPECT_EQ(w.One(end).finish, FinishReason::kStop);
      EXPECT_TRUE(w.table.empty());
      EXPECT_EQ(w.table.kv().free(), kLimits.num_blocks);
    }
  }
}

TEST(Commit, MinTokensHoldsTheEndBack) {
  World w;
  ASSERT_TRUE(w.table.Add(Request(1, 1, {.max_tokens = 9, .min_tokens = 2, .eos_ids = {1}})).ok());
  EXPECT_EQ(w.One(1).sampled.token, 0);
  EXPECT_EQ(w.One(1).sampled.token, 0);
  EXPECT_EQ(w.One(1).finish, FinishReason::kStop);
}

TEST(Commit, ForksShareAndGoOnAlone) {
  World w;
  EngineRequest r = Request(1, 6, {.max_tokens = 3});
  r.n = 3;
  r.choice = 1;
  ASSERT_TRUE(w.table.Add(r).ok());
  const StepOutput first = w.Step(2);
  ASSERT_EQ(first.tokens.size(), 3u);
  EXPECT_EQ(w.table.kv().total() - w.table.kv().free(), 2) << "two blocks of the prompt, shared";
  EXPECT_EQ(w.table.scheduler().running(), 3);
  const StepOutput second = w.Step(3);
  EXPECT_EQ(second.tokens.size(), 3u);
  EXPECT_EQ(w.table.kv().copies(), 2u) << "the last one keeps the block";
  const StepOutput third = w.Step(1);
  ASSERT_EQ(third.tokens.size(), 3u);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(third.tokens[size_t(i)].finish, FinishReason::kLength);
    EXPECT_EQ(third.tokens[size_t(i)].last, i == 2);
    EXPECT_EQ(third.tokens[size_t(i)].index, 2);
  }
  EXPECT_TRUE(w.table.empty());
  EXPECT_EQ(w.table.kv().free(), kLimits.num_blocks);
}

TEST(Commit, AllForksMayEndWithTheirFirstToken) {
  World w;
  EngineRequest r = Request(1, 6, {.max_tokens = 5, .stop_ids = {2}});
  r.n = 3;
  ASSERT_TRUE(w.table.Add(r).ok());
  const StepOutput out = w.Step(2);
  ASSERT_EQ(out.tokens.size(), 3u);
  int last = 0;
  for (const TokenOutput& t : out.tokens) last += t.last;
  EXPECT_EQ(last, 1);
  EXPECT_TRUE(out.tokens[2].last);
  EXPECT_TRUE(w.table.empty());
  EXPECT_EQ(w.table.kv().free(), kLimits.num_blocks);
}

TEST(Commit, PromptLogprobsComeWithTheFirstTokenOnce) {
  SequenceTable table(kLimits, {.max_step_tokens = 3});
  EngineRequest r = Request(1, 8, {.max_tokens = 2});
  r.tokens = {0, 1, 2, 3, 0, 1, 2, 3};
  r.prompt_logprobs = 1;
  ASSERT_TRUE(table.Add(r).ok());
  FakeForward model(kLimits.num_blocks, kLimits.block_size, kVocab);
  std::vector<Sampled> prompt;
  for (uint64_t number = 1; !table.empty(); ++number) {
    StepWork step = MakeStep(number, table.scheduler().Plan(), kLimits.block_size);
    table.kv().StepBegun(number);
    model.Execute(step);
    for (const TokenOutput& out : Commit(step, table).tokens) {
      EXPECT_EQ(out.prompt.size(), out.index == 0 ? 7u : 0u);
      prompt.insert(prompt.end(), out.prompt.begin(), out.prompt.end());
    }
  }
  const std::vector<uint64_t> numbers = FakeForward::Numbers(r.tokens);
  ASSERT_EQ(prompt.size(), 7u);
  for (size_t i = 0; i < 7; ++i) {
    std::vector<float> logits = FakeForward::Logits(numbers[i], kVocab);
    const Sampled expected = Score(logits, r.tokens[i + 1], 1);
    EXPECT_EQ(prompt[i].token, expected.token);
    EXPECT_EQ(prompt[i].logprob, expected.logprob);
    EXPECT_EQ(prompt[i].top, expected.top);
  }
}

// Says always the same.
class Parrot final : public Drafter {
 public:
  explicit Parrot(std::vector<int32_t> says) : says_(std::move(says)) {}
  bool active(int) const override { return true; }
  std::vector<int32_t> Propose(std::span<const int32_t>, int limit) override {
    return {says_.begin(), says_.begin() + std::min(limit, int(says_.size()))};
  }
  void Report(int position, int drafted, int accepted) override { seen.push_back({position, drafted, accepted}); }
  void set_row_cost(double) override {}

  static inline std::vector<std::vector<int>> seen;  // position, drafted, accepted

 private:
  std::vector<int32_t> says_;
};

TEST(Commit, DraftsThatAreRightCountAndTheRestIsGivenBack) {
  Parrot::seen.clear();
  World w([] { return std::make_unique<Parrot>(std::vector<int32_t>{2, 2, 3, 2, 2}); });
  ASSERT_TRUE(w.table.Add(Request(1, 3, {.max_tokens = 20})).ok());
  EXPECT_EQ(w.Step(2).tokens.size(), 1u) << "the first token needs no guess";
  const StepOutput out = w.Step(2);
  EXPECT_EQ(out.tokens.size(), 3u) << "two guesses and the token after them";
  EXPECT_EQ(out.accepted_drafts, 2u);
  const Sequence* s = w.table.Find(1);
  EXPECT_THAT(s->tokens, ElementsAre(0, 0, 0, 2, 2, 2, 2));
  EXPECT_EQ(s->computed, 6);
  EXPECT_EQ(s->scheduled, 6);
  EXPECT_EQ(s->blocks.size(), 2u) << "the third block was for guesses";
  EXPECT_THAT(Parrot::seen, ElementsAre(ElementsAre(4, 5, 2)));
}

TEST(Commit, AStopAmongTheDraftsEndsTheAnswer) {
  World w([] { return std::make_unique<Parrot>(std::vector<int32_t>{2, 2, 2}); });
  ASSERT_TRUE(w.table.Add(Request(1, 3, {.max_tokens = 20, .min_tokens = 2, .stop_ids = {2}})).ok());
  // The mask of min_tokens makes other tokens of the first two.
  EXPECT_EQ(w.One(2).sampled.token, 0);
  EXPECT_EQ(w.Step(2).tokens.size(), 1u);
  const StepOutput out = w.Step(2);
  ASSERT_EQ(out.tokens.size(), 1u);
  EXPECT_EQ(out.tokens[0].finish, FinishReason::kStop);
  EXPECT_TRUE(w.table.empty());
  EXPECT_EQ(w.table.kv().free(), kLimits.num_blocks);
}

}  // namespace
}  // namespace sluice::engine
