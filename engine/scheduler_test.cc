#include "engine/scheduler.h"

#include <algorithm>
#include <memory>
#include <random>
#include <tuple>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice::engine {
namespace {

using testing::ElementsAre;

// What the plan says, by sequence id: (id, begin, count, samples).
std::vector<std::tuple<int, int, int, bool>> Rows(const StepPlan& plan) {
  std::vector<std::tuple<int, int, int, bool>> rows;
  for (const Chunk& c : plan) rows.emplace_back(int(c.sequence->id), c.begin, c.count, c.samples);
  return rows;
}

Sequence Make(int id, int tokens, int computed = 0, int priority = 0) {
  Sequence s;
  s.id = id;
  s.tokens.assign(tokens, 1);
  s.num_prompt_tokens = tokens;
  s.computed = computed;
  s.priority = priority;
  s.arrival = id;
  return s;
}

using Row = std::tuple<int, int, int, bool>;

TEST(Scheduler, DecodeRowsGoFirstThenChunksUpToTheBudget) {
  Scheduler scheduler({.max_step_tokens = 10, .max_step_seqs = 8});
  Sequence a = Make(1, 20), b = Make(2, 8, 7), c = Make(3, 4, 3), d = Make(4, 5);
  for (Sequence* s : {&a, &b, &c, &d}) scheduler.Add(s);
  EXPECT_THAT(Rows(scheduler.Plan()), ElementsAre(Row{2, 7, 1, true}, Row{3, 3, 1, true}, Row{1, 0, 8, false}));
  EXPECT_EQ(scheduler.running(), 2);
  EXPECT_EQ(scheduler.waiting(), 2);
  EXPECT_EQ(scheduler.waiting_tokens(), 20 + 1 + 1 + 5);
}

TEST(Scheduler, TheLastChunkOfAPromptSamplesAndTheRestOfTheBudgetGoesOn) {
  Scheduler scheduler({.max_step_tokens = 10, .max_step_seqs = 8});
  Sequence a = Make(1, 20, 16), b = Make(2, 30);
  scheduler.Add(&a);
  scheduler.Add(&b);
  EXPECT_THAT(Rows(scheduler.Plan()), ElementsAre(Row{1, 16, 4, true}, Row{2, 0, 6, false}));
}

TEST(Scheduler, LowerPriorityNumbersFirstThenArrival) {
  Scheduler scheduler({.max_step_tokens = 4, .max_step_seqs = 8});
  Sequence a = Make(1, 9, 0, 5), b = Make(2, 3, 0, -1), c = Make(3, 3, 0, -1);
  for (Sequence* s : {&c, &a, &b}) scheduler.Add(s);
  EXPECT_THAT(Rows(scheduler.Plan()), ElementsAre(Row{2, 0, 3, true}, Row{3, 0, 1, false}));
}

TEST(Scheduler, SequencesOfAStepAreBounded) {
  Scheduler scheduler({.max_step_tokens = 100, .max_step_seqs = 2});
  Sequence a = Make(1, 9), b = Make(2, 9, 8), c = Make(3, 9, 8), d = Make(4, 9, 8);
  for (Sequence* s : {&a, &b, &c, &d}) scheduler.Add(s);
  EXPECT_THAT(Rows(scheduler.Plan()), ElementsAre(Row{2, 8, 1, true}, Row{3, 8, 1, true}));
}

TEST(Scheduler, RemovedAndFinishedSequencesAreNotPlanned) {
  Scheduler scheduler({.max_step_tokens = 100, .max_step_seqs = 2});
  Sequence a = Make(1, 9), done = Make(2, 9, 9);
  scheduler.Add(&a);
  scheduler.Add(&done);
  scheduler.Remove(&a);
  scheduler.Remove(&a);
  EXPECT_TRUE(scheduler.Plan().empty());
  EXPECT_FALSE(scheduler.empty());
}

struct RandomLoad {
  explicit RandomLoad(uint64_t seed) : random(seed) {}
  int Below(int n) { return int(random() % n); }

  std::mt19937_64 random;
  std::vector<std::unique_ptr<Sequence>> live;
  int next_id = 1;
};

void CheckInvariants(const StepPlan& plan, const RandomLoad& load, const SchedulerLimits& limits) {
  int rows = 0, planned_decode = 0, decode = 0;
  bool chunks_began = false;
  std::vector<const Sequence*> seen;
  for (const Chunk& c : plan) {
    rows += c.count;
    ASSERT_GT(c.count, 0);
    ASSERT_EQ(c.begin, c.sequence->computed);
    ASSERT_LE(c.begin + c.count, int(c.sequence->tokens.size()));
    ASSERT_EQ(c.samples, c.begin + c.count == int(c.sequence->tokens.size()));
    ASSERT_EQ(std::count(seen.begin(), seen.end(), c.sequence), 0);
    seen.push_back(c.sequence);
    const bool is_decode = c.sequence->remaining() == 1;
    ASSERT_FALSE(chunks_began && is_decode) << "a decode row after a chunk";
    chunks_began |= !is_decode;
    planned_decode += is_decode;
  }
  ASSERT_LE(rows, limits.max_step_tokens);
  ASSERT_LE(int(plan.size()), limits.max_step_seqs);
  for (const auto& s : load.live) decode += s->remaining() == 1;
  ASSERT_EQ(planned_decode, std::min({decode, limits.max_step_tokens, limits.max_step_seqs}));
  // Nothing idles: what is left out is left out for a limit.
  if (seen.size() < load.live.size()) {
    ASSERT_TRUE(rows == limits.max_step_tokens || int(plan.size()) == limits.max_step_seqs);
  }
  // Whoever is left out has nobody behind it (same kind, later in order) that is in.
  for (const auto& out : load.live) {
    if (std::count(seen.begin(), seen.end(), out.get()) != 0) continue;
    for (const Sequence* in : seen) {
      if ((in->remaining() == 1) != (out->remaining() == 1)) continue;
      ASSERT_LT(std::make_pair(in->priority, in->arrival), std::make_pair(out->priority, out->arrival));
    }
  }
}

TEST(Scheduler, InvariantsHoldUnderRandomOperations) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  RandomLoad load(seed);
  for (int round = 0; round < 20; ++round) {
    const SchedulerLimits limits{.max_step_tokens = 1 + load.Below(40), .max_step_seqs = 1 + load.Below(10)};
    Scheduler scheduler(limits);
    load.live.clear();
    for (int i = 0; i < 500; ++i) {
      if (load.Below(3) == 0) {
        load.live.push_back(std::make_unique<Sequence>(Make(load.next_id++, 1 + load.Below(60), 0, load.Below(3) - 1)));
        scheduler.Add(load.live.back().get());
      } else if (load.Below(10) == 0 && !load.live.empty()) {
        const auto it = load.live.begin() + load.Below(int(load.live.size()));
        scheduler.Remove(it->get());
        load.live.erase(it);
      }
      const StepPlan plan = scheduler.Plan();
      CheckInvariants(plan, load, limits);
      if (testing::Test::HasFatalFailure()) return;
      for (const Chunk& c : plan) {
        c.sequence->computed += c.count;
        if (c.samples) c.sequence->tokens.push_back(1);
      }
    }
  }
}

}  // namespace
}  // namespace sluice::engine
