#include "router/policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace sluice::router {
namespace {

using ::testing::HasSubstr;

pb::WorkerInfo Info(int64_t blocks, int max_running = 8, int max_step_tokens = 128) {
  pb::WorkerInfo info;
  info.mutable_fingerprint()->set_block_size(16);
  info.set_blocks_total(blocks);
  info.set_max_running(max_running);
  info.set_max_step_tokens(max_step_tokens);
  info.set_context_length(2048);
  return info;
}

pb::WorkerReport Report(int64_t free, int64_t waiting_tokens) {
  pb::WorkerReport report;
  report.set_blocks_free(free);
  report.set_waiting_tokens(waiting_tokens);
  return report;
}

TEST(LoadModelTest, ChargesAtDispatchAndGivesBackAtTheEnd) {
  WorkerLoad load(Info(100));
  const AttemptKey key{"a", 1};
  load.Dispatched(key, {20, 30});  // 50 tokens: 4 blocks
  EXPECT_EQ(load.blocks_free(), 96);
  EXPECT_EQ(load.prompt_backlog(), 20);
  EXPECT_EQ(load.answer_tokens(), 30);
  load.Granted(key);
  load.Generated(key, 5);
  EXPECT_EQ(load.prompt_backlog(), 0);
  EXPECT_EQ(load.answer_tokens(), 25);
  load.Ended(key);
  load.Ended(key);
  EXPECT_EQ(load.blocks_free(), 100);
  EXPECT_EQ(load.answer_tokens(), 0);
}

TEST(LoadModelTest, AReportReplacesWhatItKnowsAndKeepsWhatIsOnTheWay) {
  WorkerLoad load(Info(100));
  load.Dispatched({"a", 1}, {16, 16});
  load.Granted({"a", 1});
  load.Dispatched({"b", 1}, {32, 32});
  load.Report(Report(90, 16));  // the worker has granted a (and serves another router); b is on the way
  EXPECT_EQ(load.blocks_free(), 90 - 4);
  EXPECT_EQ(load.prompt_backlog(), 16 + 32);
  load.Ended({"a", 1});
  EXPECT_EQ(load.blocks_free(), 92 - 4);
  EXPECT_EQ(load.prompt_backlog(), 32);
}

TEST(LoadModelTest, ARefusalHoldsBackUntilSomethingChanges) {
  WorkerLoad load(Info(100));
  load.Dispatched({"a", 1}, {16, 16});
  load.Refused({"a", 1}, 1);
  EXPECT_TRUE(load.held_back());
  EXPECT_EQ(load.blocks_free(), 1);
  EXPECT_EQ(load.attempts(), 0);
  load.Report(Report(50, 0));
  EXPECT_FALSE(load.held_back());
  EXPECT_EQ(load.blocks_free(), 50);
}

TEST(LoadModelTest, APrefillWorkersBacklogFollowsItsProgress) {
  pb::WorkerInfo info = Info(100);
  info.set_role(pb::ROLE_PREFILL);
  WorkerLoad load(info);
  load.Dispatched({"a", 1}, {100, 0});  // 7 blocks
  load.Dispatched({"b", 1}, {50, 0});   // 4 blocks
  EXPECT_EQ(load.prompt_backlog(), 150);
  EXPECT_EQ(load.blocks_free(), 89);
  load.Computed({"a", 1}, 64);
  load.Computed({"a", 1}, 16);  // late
  load.Computed({"c", 1}, 16);  // unknown
  EXPECT_EQ(load.prompt_backlog(), 86);
  load.Report(Report(93, 66));  // it has not heard of b yet
  EXPECT_EQ(load.prompt_backlog(), 86);
  EXPECT_EQ(load.blocks_free(), 89);
  load.Report(Report(80, 116));
  EXPECT_EQ(load.prompt_backlog(), 116) << "somebody else gave it 30";
  load.Ended({"a", 1});
  EXPECT_EQ(load.prompt_backlog(), 80);
}

TEST(LoadModelTest, ADecodeWorkerHasNoPrompts) {
  pb::WorkerInfo info = Info(100);
  info.set_role(pb::ROLE_DECODE);
  WorkerLoad load(info);
  load.Dispatched({"a", 1}, {100, 20});
  EXPECT_EQ(load.prompt_backlog(), 0);
  EXPECT_EQ(load.answer_tokens(), 20);
  EXPECT_EQ(load.blocks_free(), 92);
}

Pools Both(std::vector<Candidate> both) {
  Pools pools;
  pools.both = std::move(both);
  return pools;
}

class PolicyTest : public ::testing::Test {
 protected:
  Candidate Add(uint64_t incarnation, const pb::WorkerInfo& info) {
    loads_[incarnation] = WorkerLoad(info);
    return {incarnation, "w", &loads_[incarnation], true, false};
  }
  std::map<uint64_t, WorkerLoad> loads_;
  std::mt19937_64 rng_{7};
};

TEST_F(PolicyTest, ABurstSpreadsOverTheLeastLoaded) {
  std::vector<Candidate> candidates{Add(1, Info(1000)), Add(2, Info(1000)), Add(3, Info(1000))};
  std::map<uint64_t, int> placed;
  for (int i = 0; i < 9; ++i) {
    const Placement placement = Place(Both(candidates), {10, 10}, false, rng_);
    ASSERT_EQ(placement.kind, Placement::Kind::kPlace);
    loads_[placement.decode].Dispatched({std::to_string(i), 1}, {10, 10});
    ++placed[placement.decode];
  }
  EXPECT_EQ(placed, (std::map<uint64_t, int>{{1, 3}, {2, 3}, {3, 3}}));
}

TEST_F(PolicyTest, TiesAreBrokenAtRandom) {
  const std::vector<Candidate> candidates{Add(1, Info(1000)), Add(2, Info(1000))};
  std::map<uint64_t, int> placed;
  for (int i = 0; i < 1000; ++i) ++placed[Place(Both(candidates), {10, 10}, false, rng_).decode];
  EXPECT_GT(placed[1], 400);
  EXPECT_GT(placed[2], 400);
}

TEST_F(PolicyTest, WaitsForBlocksForARowOrForCredit) {
  const Demand demand{16, 16};
  EXPECT_EQ(Place(Both({Add(1, Info(2))}), demand, false, rng_).kind, Placement::Kind::kPlace);
  loads_[1].Dispatched({"a", 1}, {1, 1});
  EXPECT_EQ(Place(Both({{1, "w", &loads_[1], true, false}}), demand, false, rng_).kind, Placement::Kind::kWait);

  const Candidate one_row = Add(2, Info(1000, 1));
  loads_[2].Dispatched({"a", 1}, {1, 1});
  EXPECT_EQ(Place(Both({one_row}), demand, false, rng_).kind, Placement::Kind::kWait);

  const Candidate credit = Add(3, Info(1000, 8, 128));
  loads_[3].Dispatched({"a", 1}, {127, 1});
  EXPECT_EQ(Place(Both({credit}), {1000, 16}, false, rng_).kind, Placement::Kind::kPlace) << "however long it is";
  loads_[3].Dispatched({"b", 1}, {1, 1});
  EXPECT_EQ(Place(Both({credit}), {1, 16}, false, rng_).kind, Placement::Kind::kWait);
  loads_[3].Granted({"a", 1});
  loads_[3].Generated({"a", 1}, 1);
  EXPECT_EQ(Place(Both({credit}), {1, 16}, false, rng_).kind, Placement::Kind::kPlace);
}

TEST_F(PolicyTest, NeverOnlyIfNobodyAliveCouldEver) {
  Candidate small = Add(1, Info(2));
  Candidate large = Add(2, Info(100));
  const Demand demand{100, 100};
  EXPECT_EQ(Place(Both({small, large}), demand, false, rng_).decode, 2u);
  large.active = false;
  EXPECT_EQ(Place(Both({small, large}), demand, false, rng_).kind, Placement::Kind::kWait);
  const Placement never = Place(Both({small}), demand, false, rng_);
  EXPECT_EQ(never.kind, Placement::Kind::kNever);
  EXPECT_THAT(never.explanation, HasSubstr("(32 tokens)"));
  large.active = true;
  large.refused_ever = true;
  EXPECT_EQ(Place(Both({large}), demand, false, rng_).kind, Placement::Kind::kNever);
  EXPECT_EQ(Place(Both({}), demand, false, rng_).kind, Placement::Kind::kNoWorker);
  EXPECT_EQ(Place(Both({Add(3, Info(1000))}), {1500, 1500}, false, rng_).kind, Placement::Kind::kNever)
      << "its context";
}

TEST(LoadModelTest, ChoicesShareTheFullBlocksOfThePrompt) {
  EXPECT_EQ((Demand{40, 8, 1}).Blocks(16), 3);
  EXPECT_EQ((Demand{40, 8, 4}).Blocks(16), 3 + 3) << "two full blocks of the prompt are shared";
  EXPECT_EQ((Demand{32, 16, 4}).Blocks(16), 3 + 3);
  EXPECT_EQ((Demand{40, 0, 4}).Blocks(16), 3) << "who only computes the prompt";
  EXPECT_EQ((Demand{40, 800, 1, 8}).Blocks(16), 3) << "promised for 8 tokens of the answer";
  EXPECT_EQ((Demand{40, 4, 1, 100}).Blocks(16), 3) << "never for more than the answer";
  WorkerLoad load(Info(100));
  load.Dispatched({"a", 1}, {40, 8, 4});
  EXPECT_EQ(load.blocks_free(), 94);
  EXPECT_EQ(load.answer_tokens(), 32);
  EXPECT_EQ(load.sequences(), 4);
}

TEST_F(PolicyTest, ChoicesNeedRowsAndBlocks) {
  const Candidate worker = Add(1, Info(100, 8));
  EXPECT_EQ(Place(Both({worker}), {16, 16, 8}, false, rng_).kind, Placement::Kind::kPlace);
  loads_[1].Dispatched({"a", 1}, {1, 1, 2});
  EXPECT_EQ(Place(Both({worker}), {16, 16, 7}, false, rng_).kind, Placement::Kind::kWait);
  EXPECT_EQ(Place(Both({worker}), {16, 16, 6}, false, rng_).kind, Placement::Kind::kPlace);
  Placement never = Place(Both({worker}), {16, 16, 9}, false, rng_);
  EXPECT_EQ(never.kind, Placement::Kind::kNever);
  EXPECT_THAT(never.explanation, HasSubstr("sampling.n: 9 answers"));
  const Candidate roomy = Add(2, Info(100, 64));
  EXPECT_EQ(Place(Both({roomy}), {100, 1500, 1}, false, rng_).kind, Placement::Kind::kPlace);
  never = Place(Both({roomy}), {100, 1000, 2}, false, rng_);
  EXPECT_EQ(never.kind, Placement::Kind::kNever) << "63 + 63 blocks";
  EXPECT_THAT(never.explanation, HasSubstr("sampling.n: prompt (100 tokens) + 2 answers"));
  EXPECT_EQ(Place(Both({Add(3, Info(300, 64))}), {16, 1100, 2}, false, rng_).kind, Placement::Kind::kPlace)
      << "more than the context together, but each of them fits";
}

// One token each needs no decode worker, however many there are.
TEST_F(PolicyTest, ManyAnswersOfOneTokenStayAtThePrefillWorker) {
  pb::WorkerInfo info = Info(100);
  info.set_role(pb::ROLE_PREFILL);
  Pools pools;
  pools.prefill = {Add(1, info)};
  pools.pair = [](uint64_t, uint64_t) { return PairState::kUp; };
  const Placement placement = Place(pools, {16, 1, 4}, false, rng_);
  EXPECT_EQ(placement.kind, Placement::Kind::kPlace);
  EXPECT_EQ(placement.prefill, 1u);
  EXPECT_EQ(placement.decode, 0u);
  EXPECT_EQ(Place(pools, {16, 2, 4}, false, rng_).kind, Placement::Kind::kNoWorker);
}

TEST_F(PolicyTest, FewSequencesAreBetterCompanyThanMany) {
  pb::WorkerInfo info = Info(1000, 64);
  info.set_role(pb::ROLE_DECODE);
  const Candidate crowded = Add(1, info), long_answer = Add(2, info);
  for (int i = 0; i < 10; ++i) loads_[1].Dispatched({std::to_string(i), 1}, {16, 10});
  loads_[2].Dispatched({"long", 1}, {16, 150});
  info.set_role(pb::ROLE_PREFILL);
  Pools pools;
  pools.prefill = {Add(3, info)};
  pools.decode = {crowded, long_answer};
  pools.pair = [](uint64_t, uint64_t) { return PairState::kUp; };
  EXPECT_EQ(Place(pools, {16, 20}, false, rng_).decode, 2u) << "100 + 20 x 11 rows against 150 + 20 x 2";
  EXPECT_EQ(Place(pools, {16, 2}, false, rng_).decode, 1u) << "100 + 2 x 11 rows against 150 + 2 x 2";
  pb::WorkerReport report = Report(900, 0);
  report.set_running(40);  // another router's
  loads_[2].Report(report);
  EXPECT_EQ(Place(pools, {16, 20}, false, rng_).decode, 1u);
}

TEST_F(PolicyTest, ExplainsWithNumbers) {
  const Candidate candidate = Add(1, Info(100));
  loads_[1].Dispatched({"a", 1}, {20, 30});
  EXPECT_THAT(Place(Both({candidate}), {16, 4}, true, rng_).explanation,
              HasSubstr("cost 74 = backlog 20 + answers 30 + own 24; blocks 96 of 100 free, needs 2"));
}

}  // namespace
}  // namespace sluice::router
