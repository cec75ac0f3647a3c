#include "engine/scheduler.h"

#include <memory>
#include <tuple>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice::engine {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// What the plan says: (id, begin, count, samples).
using Row = std::tuple<int, int, int, bool>;
std::vector<Row> Rows(const StepPlan& plan) {
  std::vector<Row> rows;
  for (const Chunk& c : plan.chunks) rows.emplace_back(int(c.sequence->id), c.begin, c.count, c.samples);
  return rows;
}

class SchedulerTest : public testing::Test {
 protected:
  void Start(SchedulerLimits limits, int blocks = 100, int block_size = 4) {
    kv_ = std::make_unique<KvBlocks>(blocks, block_size, false);
    scheduler_ = std::make_unique<Scheduler>(limits, kv_.get());
  }
  std::shared_ptr<Sequence> Make(int tokens, int priority = 0, int max_tokens = 1000) {
    auto s = std::make_shared<Sequence>();
    s->id = uint64_t(++made_);
    s->tokens.assign(size_t(tokens), 1);
    s->num_prompt_tokens = tokens;
    s->priority = priority;
    s->arrival = s->id;
    s->sample = std::make_shared<SampleState>(SamplingParams{.max_tokens = max_tokens}, 0, s->tokens, tokens);
    return s;
  }
  std::shared_ptr<Sequence> Waiting(int tokens, int priority = 0) {
    auto s = Make(tokens, priority);
    scheduler_->AddWaiting(s);
    return s;
  }
  // All but the last token is computed.
  std::shared_ptr<Sequence> Decoding(int tokens, int priority = 0, int max_tokens = 1000) {
    auto s = Make(tokens, priority, max_tokens);
    EXPECT_TRUE(kv_->Admit(*s, tokens, 0));
    s->computed = s->scheduled = tokens - 1;
    scheduler_->AddRunning(s);
    return s;
  }
  // Plans a step and, as if it had been executed, commits it.
  StepPlan Step() {
    StepPlan plan = scheduler_->Plan();
    if (!plan.empty()) kv_->StepBegun(++step_);
    Commit(plan);
    kv_->StepDone(step_);
    return plan;
  }
  static void Commit(const StepPlan& plan) {
    for (const Chunk& c : plan.chunks) {
      Sequence& s = *c.sequence;
      if (c.recomputes == s.recomputes) s.computed = c.begin + c.count;
      if (c.samples) s.tokens.push_back(1), --s.pending;
    }
  }

  std::unique_ptr<KvBlocks> kv_;
  std::unique_ptr<Scheduler> scheduler_;
  int made_ = 0;
  uint64_t step_ = 0;
};

TEST_F(SchedulerTest, DecodeRowsGoFirstThenChunksUpToTheBudget) {
  Start({.max_step_tokens = 10, .max_step_seqs = 8});
  Waiting(20), Decoding(8), Decoding(4), Waiting(5);
  EXPECT_THAT(Rows(Step()), ElementsAre(Row{2, 7, 1, true}, Row{3, 3, 1, true}, Row{1, 0, 8, false}));
  EXPECT_EQ(scheduler_->running(), 3);
  EXPECT_EQ(scheduler_->waiting(), 1);
  EXPECT_EQ(scheduler_->waiting_tokens(), 12 + 5) << "decode rows wait for nothing";
}

TEST_F(SchedulerTest, TheLastChunkOfAPromptSamplesAndTheRestOfTheBudgetGoesOn) {
  Start({.max_step_tokens = 16, .max_step_seqs = 8});
  Waiting(20), Waiting(30);
  EXPECT_THAT(Rows(Step()), ElementsAre(Row{1, 0, 16, false}));
  EXPECT_THAT(Rows(Step()), ElementsAre(Row{1, 16, 4, true}, Row{2, 0, 12, false}));
}

TEST_F(SchedulerTest, LowerPriorityNumbersFirstThenArrival) {
  Start({.max_step_tokens = 4, .max_step_seqs = 8});
  Waiting(9, 5), Waiting(3, -1), Waiting(3, -1);
  EXPECT_THAT(Rows(Step()), ElementsAre(Row{2, 0, 3, true}, Row{3, 0, 1, false}));
}

TEST_F(SchedulerTest, ChunksBesideDecodeRowsAreCapped) {
  Start({.max_step_tokens = 64, .max_step_seqs = 8, .max_chunk_tokens_beside_decode = 6});
  const auto a = Decoding(4);
  Waiting(20), Waiting(3);
  EXPECT_THAT(Rows(Step()), ElementsAre(Row{1, 3, 1, true}, Row{2, 0, 6, false}));
  scheduler_->Remove(a.get());
  kv_->Release(*a);
  EXPECT_THAT(Rows(Step()), ElementsAre(Row{2, 6, 14, true}, Row{3, 0, 3, true})) << "alone they may use the whole step";
}

// Forks may be more than a step takes: they take turns.
TEST_F(SchedulerTest, DecodeRowsThatDoNotFitTakeTurns) {
  Start({.max_step_tokens = 100, .max_step_seqs = 2});
  const std::vector<std::shared_ptr<Sequence>> all = {Decoding(9), Decoding(9), Decoding(9)};
  EXPECT_THAT(Rows(Step()), ElementsAre(Row{1, 8, 1, true}, Row{2, 8, 1, true}));
  EXPECT_THAT(Rows(Step()), ElementsAre(Row{3, 8, 1, true}, Row{1, 9, 1, true}));
  for (int i = 0; i < 20; ++i) Step();
  for (const auto& s : all) EXPECT_GE(s->tokens.size(), 9u + 11u) << "nobody is left out twice in a row";
}

TEST_F(SchedulerTest, OnlyAsManyRunAsAStepTakes) {
  Start({.max_step_tokens = 100, .max_step_seqs = 2});
  Decoding(9), Waiting(5), Waiting(5);
  EXPECT_THAT(Rows(Step()), ElementsAre(Row{1, 8, 1, true}, Row{2, 0, 5, true}));
  EXPECT_EQ(scheduler_->waiting(), 1);
}

TEST_F(SchedulerTest, NothingIsPlannedBeyondTheLastToken) {
  Start({});
  const auto s = Decoding(5, 0, /*max_tokens=*/2);
  EXPECT_THAT(Rows(Step()), ElementsAre(Row{1, 4, 1, true}));
  const StepPlan last = scheduler_->Plan();
  EXPECT_THAT(Rows(last), ElementsAre(Row{1, 5, 1, true}));
  EXPECT_THAT(Rows(scheduler_->Plan()), IsEmpty()) << "two tokens are known or under way";
}

// While a step is under way the next one goes on after it.
TEST_F(SchedulerTest, StepsOverlap) {
  Start({.max_step_tokens = 8, .max_step_seqs = 4});
  Waiting(12);
  const StepPlan first = scheduler_->Plan(), second = scheduler_->Plan();
  EXPECT_THAT(Rows(first), ElementsAre(Row{1, 0, 8, false}));
  EXPECT_THAT(Rows(second), ElementsAre(Row{1, 8, 4, true}));
  EXPECT_THAT(Rows(scheduler_->Plan()), ElementsAre(Row{1, 12, 1, true}));
}

// A pool of 5 blocks of 4: two sequences of 8 tokens that grow. The newer one gives way, and comes back.
TEST_F(SchedulerTest, TheNewestOfTheLowestPriorityGivesWay) {
  Start({.max_step_tokens = 32, .max_step_seqs = 4}, 5);
  const auto a = Decoding(8), b = Decoding(8);
  Step();
  EXPECT_EQ(kv_->free(), 1);
  EXPECT_THAT(Rows(Step()), ElementsAre(Row{1, 8, 1, true})) << "the last block is the older one's";
  EXPECT_EQ(scheduler_->preemptions(), 0u) << "to wait is enough while nobody needs more";
  for (int i = 0; i < 3; ++i) Step();
  EXPECT_EQ(a->tokens.size(), 13u);
  EXPECT_THAT(Rows(Step()), ElementsAre(Row{1, 12, 1, true}));
  EXPECT_EQ(scheduler_->preemptions(), 1u);
  EXPECT_THAT(b->blocks, IsEmpty());
  EXPECT_EQ(b->recomputes, 1u);
  scheduler_->Remove(a.get());
  kv_->Release(*a);
  EXPECT_THAT(Rows(Step()), ElementsAre(Row{2, 0, 9, true})) << "all its tokens again";
}

TEST_F(SchedulerTest, ABetterPriorityTakesBlocksAndPlaces) {
  Start({.max_step_tokens = 32, .max_step_seqs = 2}, 6);
  const auto low = Decoding(8, 5), mid = Decoding(8, 3);
  Waiting(9, 4);
  EXPECT_THAT(Rows(Step()), ElementsAre(Row{2, 7, 1, true}, Row{3, 0, 9, true})) << "in the place of the lowest";
  EXPECT_EQ(scheduler_->preemptions(), 1u);
  EXPECT_THAT(low->blocks, IsEmpty());
  Waiting(2, 3);
  Step();
  EXPECT_EQ(scheduler_->preemptions(), 2u);
  Waiting(2, 3);
  Step();
  EXPECT_EQ(scheduler_->preemptions(), 2u) << "an equal one waits";
}

TEST_F(SchedulerTest, AParkingOneKeepsItsBlocks) {
  Start({.max_step_tokens = 32, .max_step_seqs = 4}, 4);
  const auto a = Decoding(8), parks = Decoding(8);
  parks->park_after_first = true;
  Step();
  EXPECT_THAT(Rows(Step()), IsEmpty());
  EXPECT_EQ(scheduler_->preemptions(), 0u);
}

TEST_F(SchedulerTest, WhoDoesNotFitLetsNobodyPass) {
  Start({.max_step_tokens = 32, .max_step_seqs = 4}, 4);
  const auto a = Decoding(8);
  Waiting(12), Waiting(1);
  EXPECT_THAT(Rows(Step()), ElementsAre(Row{1, 7, 1, true}));
  scheduler_->Remove(a.get());
  kv_->Release(*a);
  EXPECT_THAT(Rows(Step()), ElementsAre(Row{2, 0, 12, true}));
}

TEST_F(SchedulerTest, WhoWaitedLongEnoughRunsBeforeBetterPriorities) {
  Start({.max_step_tokens = 8, .max_step_seqs = 1, .starvation_plans = 10});
  Waiting(4, 9);
  int steps = 0;
  for (bool ran = false; !ran; ++steps) {
    ASSERT_LT(steps, 20);
    const auto better = Waiting(4, 0);
    for (const Chunk& c : Step().chunks) ran |= c.sequence->id == 1;
    scheduler_->Remove(better.get());  // it ends with its first token, and the next one comes
    if (!better->blocks.empty()) kv_->Release(*better);
  }
  EXPECT_GE(steps, 10);
}

TEST_F(SchedulerTest, RowsOfLogitsAreABudgetToo) {
  Start({.max_step_tokens = 32, .max_step_seqs = 4, .max_step_logits = 6});
  auto s = Make(9);
  s->prompt_logprobs = 0;
  s->reads_prefix_cache = false;
  scheduler_->AddWaiting(s);
  StepPlan plan = scheduler_->Plan();
  ASSERT_EQ(plan.chunks.size(), 1u);
  EXPECT_EQ(plan.chunks[0].count, 6);
  EXPECT_EQ(plan.chunks[0].scores, 6);
  plan = scheduler_->Plan();
  ASSERT_EQ(plan.chunks.size(), 1u);
  EXPECT_EQ(plan.chunks[0].count, 3);
  EXPECT_EQ(plan.chunks[0].score_begin, 6);
  EXPECT_EQ(plan.chunks[0].scores, 2);
  EXPECT_TRUE(plan.chunks[0].samples);
}

TEST_F(SchedulerTest, RemovedOnesAreNotPlanned) {
  Start({});
  const auto a = Waiting(9), b = Decoding(5);
  for (const auto& s : {a, a, b}) scheduler_->Remove(s.get());
  EXPECT_TRUE(scheduler_->Plan().empty());
  EXPECT_TRUE(scheduler_->empty());
}

}  // namespace
}  // namespace sluice::engine
