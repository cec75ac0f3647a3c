#include "router/policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>

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
    const Placement placement = Place(Both(candidates), {10, 10}, {}, false, rng_);
    ASSERT_EQ(placement.kind, Placement::Kind::kPlace);
    loads_[placement.decode].Dispatched({std::to_string(i), 1}, {10, 10});
    ++placed[placement.decode];
  }
  EXPECT_EQ(placed, (std::map<uint64_t, int>{{1, 3}, {2, 3}, {3, 3}}));
}

TEST_F(PolicyTest, TiesAreBrokenAtRandom) {
  const std::vector<Candidate> candidates{Add(1, Info(1000)), Add(2, Info(1000))};
  std::map<uint64_t, int> placed;
  for (int i = 0; i < 1000; ++i) ++placed[Place(Both(candidates), {10, 10}, {}, false, rng_).decode];
  EXPECT_GT(placed[1], 400);
  EXPECT_GT(placed[2], 400);
}

TEST_F(PolicyTest, WaitsForBlocksForARowOrForCredit) {
  const Demand demand{16, 16};
  EXPECT_EQ(Place(Both({Add(1, Info(2))}), demand, {}, false, rng_).kind, Placement::Kind::kPlace);
  loads_[1].Dispatched({"a", 1}, {1, 1});
  EXPECT_EQ(Place(Both({{1, "w", &loads_[1], true, false}}), demand, {}, false, rng_).kind, Placement::Kind::kWait);

  const Candidate one_row = Add(2, Info(1000, 1));
  loads_[2].Dispatched({"a", 1}, {1, 1});
  EXPECT_EQ(Place(Both({one_row}), demand, {}, false, rng_).kind, Placement::Kind::kWait);

  const Candidate credit = Add(3, Info(1000, 8, 128));
  loads_[3].Dispatched({"a", 1}, {127, 1});
  EXPECT_EQ(Place(Both({credit}), {1000, 16}, {}, false, rng_).kind, Placement::Kind::kPlace) << "however long it is";
  loads_[3].Dispatched({"b", 1}, {1, 1});
  EXPECT_EQ(Place(Both({credit}), {1, 16}, {}, false, rng_).kind, Placement::Kind::kWait);
  loads_[3].Granted({"a", 1});
  loads_[3].Generated({"a", 1}, 1);
  EXPECT_EQ(Place(Both({credit}), {1, 16}, {}, false, rng_).kind, Placement::Kind::kPlace);
}

TEST_F(PolicyTest, NeverOnlyIfNobodyAliveCouldEver) {
  Candidate small = Add(1, Info(2));
  Candidate large = Add(2, Info(100));
  const Demand demand{100, 100};
  EXPECT_EQ(Place(Both({small, large}), demand, {}, false, rng_).decode, 2u);
  large.active = false;
  EXPECT_EQ(Place(Both({small, large}), demand, {}, false, rng_).kind, Placement::Kind::kWait);
  const Placement never = Place(Both({small}), demand, {}, false, rng_);
  EXPECT_EQ(never.kind, Placement::Kind::kNever);
  EXPECT_THAT(never.explanation, HasSubstr("(32 tokens)"));
  large.active = true;
  large.refused_ever = true;
  EXPECT_EQ(Place(Both({large}), demand, {}, false, rng_).kind, Placement::Kind::kNever);
  EXPECT_EQ(Place(Both({}), demand, {}, false, rng_).kind, Placement::Kind::kNoWorker);
  EXPECT_EQ(Place(Both({Add(3, Info(1000))}), {1500, 1500}, {}, false, rng_).kind, Placement::Kind::kNever)
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
  EXPECT_EQ(Place(Both({worker}), {16, 16, 8}, {}, false, rng_).kind, Placement::Kind::kPlace);
  loads_[1].Dispatched({"a", 1}, {1, 1, 2});
  EXPECT_EQ(Place(Both({worker}), {16, 16, 7}, {}, false, rng_).kind, Placement::Kind::kWait);
  EXPECT_EQ(Place(Both({worker}), {16, 16, 6}, {}, false, rng_).kind, Placement::Kind::kPlace);
  Placement never = Place(Both({worker}), {16, 16, 9}, {}, false, rng_);
  EXPECT_EQ(never.kind, Placement::Kind::kNever);
  EXPECT_THAT(never.explanation, HasSubstr("sampling.n: 9 answers"));
  const Candidate roomy = Add(2, Info(100, 64));
  EXPECT_EQ(Place(Both({roomy}), {100, 1500, 1}, {}, false, rng_).kind, Placement::Kind::kPlace);
  never = Place(Both({roomy}), {100, 1000, 2}, {}, false, rng_);
  EXPECT_EQ(never.kind, Placement::Kind::kNever) << "63 + 63 blocks";
  EXPECT_THAT(never.explanation, HasSubstr("sampling.n: prompt (100 tokens) + 2 answers"));
  EXPECT_EQ(Place(Both({Add(3, Info(300, 64))}), {16, 1100, 2}, {}, false, rng_).kind, Placement::Kind::kPlace)
      << "more than the context together, but each of them fits";
}

// One token each needs no decode worker, however many there are.
TEST_F(PolicyTest, ManyAnswersOfOneTokenStayAtThePrefillWorker) {
  pb::WorkerInfo info = Info(100);
  info.set_role(pb::ROLE_PREFILL);
  Pools pools;
  pools.prefill = {Add(1, info)};
  pools.pair = [](uint64_t, uint64_t) { return PairState::kUp; };
  const Placement placement = Place(pools, {16, 1, 4}, {}, false, rng_);
  EXPECT_EQ(placement.kind, Placement::Kind::kPlace);
  EXPECT_EQ(placement.prefill, 1u);
  EXPECT_EQ(placement.decode, 0u);
  EXPECT_EQ(Place(pools, {16, 2, 4}, {.fallback = false}, false, rng_).kind, Placement::Kind::kNoWorker);
  EXPECT_EQ(Place(pools, {16, 2, 4}, {}, false, rng_).decode, 1u) << "it does both while there is no decode worker";
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
  EXPECT_EQ(Place(pools, {16, 20}, {}, false, rng_).decode, 2u) << "a step has 2 rows there, and 11 here";
  pb::WorkerReport report = Report(900, 0);
  report.set_running(40);  // another router's
  loads_[2].Report(report);
  EXPECT_EQ(Place(pools, {16, 20}, {}, false, rng_).decode, 1u);
}

pb::WorkerInfo Role(pb::Role role, int64_t blocks = 1000) {
  pb::WorkerInfo info = Info(blocks, 64, 512);
  info.set_role(role);
  return info;
}

class PairPolicyTest : public PolicyTest {
 protected:
  PairPolicyTest() {
    pools_.prefill = {Add(1, Role(pb::ROLE_PREFILL)), Add(2, Role(pb::ROLE_PREFILL))};
    pools_.decode = {Add(11, Role(pb::ROLE_DECODE)), Add(12, Role(pb::ROLE_DECODE))};
    pools_.pair = [](uint64_t, uint64_t) { return PairState::kUp; };
  }
  Placement Placed(const Demand& demand, const PolicyOptions& options = {}) {
    return Place(pools_, demand, options, false, rng_);
  }
  // How often of 200 the prefill worker is the first one.
  int First(const Demand& demand, Policy policy) {
    int first = 0;
    for (int i = 0; i < 200; ++i) first += Placed(demand, {.policy = policy}).prefill == 1;
    return first;
  }
  Pools pools_;
};

TEST_F(PairPolicyTest, APrefixIsWorthWhatItSaves) {
  pools_.prefill[0].cached_tokens = 320;
  const Demand demand{400, 64};
  EXPECT_EQ(First(demand, Policy::kSlo), 200);
  EXPECT_NEAR(First(demand, Policy::kLeastLoaded), 100, 50);
  EXPECT_EQ(Placed(demand).prefill_hit, 320);
  loads_[1].Dispatched({"a", 1}, {300, 0});
  EXPECT_EQ(First(demand, Policy::kSlo), 200) << "300 + 400 - 314 tokens against 400";
  loads_[1].Dispatched({"b", 1}, {100, 0});
  EXPECT_EQ(First(demand, Policy::kSlo), 0) << "the hot spot costs more than the prefix saves";
  EXPECT_EQ(First(demand, Policy::kPrefix), 200) << "this policy does not care";
}

TEST_F(PairPolicyTest, ACreditDecaysUnderBacklog) {
  Pools small = pools_;
  small.prefill = {Add(3, Role(pb::ROLE_PREFILL, 30)), Add(4, Role(pb::ROLE_PREFILL, 30))};
  small.prefill[0].cached_tokens = 200;
  loads_[3].Dispatched({"a", 1}, {160, 0});  // ten blocks, a third of what there is
  EXPECT_EQ(Place(small, {240, 16}, {}, false, rng_).prefill, 4u) << "160 + 240 - 150 against 240";
  small.prefill = {Add(5, Role(pb::ROLE_PREFILL, 3000)), Add(6, Role(pb::ROLE_PREFILL, 3000))};
  small.prefill[0].cached_tokens = 200;
  loads_[5].Dispatched({"a", 1}, {160, 0});
  EXPECT_EQ(Place(small, {240, 16}, {}, false, rng_).prefill, 5u);
}

TEST_F(PairPolicyTest, RoundRobinTakesTurns) {
  std::map<std::pair<uint64_t, uint64_t>, int> pairs;
  uint64_t turn = 0;
  for (int i = 0; i < 40; ++i) {
    const Placement placed = Placed({10, 10}, {.policy = Policy::kRoundRobin});
    ++pairs[{placed.prefill, placed.decode}];
    for (uint64_t worker : {placed.prefill, placed.decode}) {
      loads_[worker].Dispatched({std::to_string(i), 1}, {1, 1}, 0, ++turn);
      loads_[worker].Ended({std::to_string(i), 1});
    }
  }
  int of_first = 0;
  for (const auto& [pair, count] : pairs) of_first += pair.first == 1 ? count : 0;
  EXPECT_EQ(of_first, 20);
}

TEST_F(PairPolicyTest, WhoFailedItComesLast) {
  pools_.prefill[0].shunned = true;
  pools_.decode[1].shunned = true;
  loads_[2].Dispatched({"a", 1}, {400, 0});
  for (Policy policy : {Policy::kSlo, Policy::kPrefix, Policy::kLeastLoaded, Policy::kRoundRobin}) {
    const Placement placed = Placed({400, 64}, {.policy = policy});
    EXPECT_EQ(placed.prefill, 2u) << PolicyName(policy);
    EXPECT_EQ(placed.decode, 11u) << PolicyName(policy);
  }
  pools_.prefill.erase(pools_.prefill.begin() + 1);
  EXPECT_EQ(Placed({400, 64}).prefill, 1u) << "better than nobody";
}

TEST_F(PairPolicyTest, WhoKeepsTheLimitsComesFirst) {
  Demand demand{400, 1000};
  pb::WorkerReport report = Report(1000, 0);
  report.set_running(1);
  report.set_step_ms(10);
  loads_[11].Report(report);
  report.set_step_ms(20);
  loads_[12].Report(report);
  loads_[1].Dispatched({"a", 1}, {450, 0});
  EXPECT_EQ(Placed(demand).prefill, 2u);
  EXPECT_EQ(Placed(demand).decode, 11u);
  pools_.pair = [](uint64_t p, uint64_t d) { return (p == 1) == (d == 11) ? PairState::kUp : PairState::kUnknown; };
  EXPECT_EQ(Placed(demand).decode, 11u) << "2560 ms of decoding less are worth 450 ms of waiting";
  demand.ttft_limit_ms = 500;
  EXPECT_EQ(Placed(demand).prefill, 2u);
  demand.tpot_limit_ms = 15;
  EXPECT_EQ(Placed(demand).decode, 11u) << "one limit is missed either way";
}

TEST_F(PairPolicyTest, MemoryThatRunsOutCosts) {
  for (const auto& [worker, free] : {std::pair(11, 20), std::pair(12, 900)}) {
    pb::WorkerReport report = Report(free, 0);
    report.set_running(1);
    report.set_step_ms(10);
    loads_[uint64_t(worker)].Report(report);
  }
  EXPECT_EQ(Placed({100, 100}).decode, 12u) << "the last blocks are dear";
}

TEST_F(PairPolicyTest, ShortPromptsMayStayAtTheDecodeWorker) {
  loads_[1].Dispatched({"a", 1}, {400, 0});
  loads_[2].Dispatched({"a", 1}, {400, 0});
  EXPECT_NE(Placed({30, 64}).prefill, 0u) << "off by default";
  EXPECT_EQ(Placed({30, 64}, {.local_prefill_tokens = 32}).prefill, 0u);
  EXPECT_NE(Placed({40, 64}, {.local_prefill_tokens = 32}).prefill, 0u);
  pools_.decode[0].cached_tokens = 1000;
  EXPECT_EQ(Placed({1030, 64}, {.local_prefill_tokens = 32}).decode, 11u) << "what is left of it is short";
}

TEST_F(PairPolicyTest, WhereARoleIsMissingTheOtherDoesBoth) {
  pools_.prefill.clear();
  const Placement placed = Placed({100, 64});
  EXPECT_EQ(placed.kind, Placement::Kind::kPlace);
  EXPECT_EQ(placed.prefill, 0u);
  EXPECT_EQ(Placed({100, 64}, {.fallback = false}).kind, Placement::Kind::kNoWorker);
  pools_.prefill = {Add(1, Role(pb::ROLE_PREFILL))};
  pools_.decode.clear();
  EXPECT_EQ(Placed({100, 64}).decode, 1u);
  EXPECT_EQ(Placed({100, 64}).prefill, 0u);
}

TEST_F(PairPolicyTest, ThePredictionSharesTheQueueAmongAll) {
  EXPECT_DOUBLE_EQ(PredictedTtftMs(pools_, {100, 64}, 0), 100);
  EXPECT_DOUBLE_EQ(PredictedTtftMs(pools_, {100, 64}, 1000), 600);
  loads_[1].Dispatched({"a", 1}, {50, 0});
  EXPECT_DOUBLE_EQ(PredictedTtftMs(pools_, {100, 64}, 0), 100) << "the other one is free";
  pools_.prefill[0].cached_tokens = 80;
  EXPECT_LT(PredictedTtftMs(pools_, {100, 64}, 0), 75);
}

// Against trying all pairs.
TEST_F(PolicyTest, ThePairIsTheCheapestOfAll) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 rng(seed);
  for (int round = 0; round < 300; ++round) {
    loads_.clear();
    Pools pools;
    const int ps = 1 + int(rng() % 6), ds = 1 + int(rng() % 6);
    for (int i = 1; i <= ps; ++i) pools.prefill.push_back(Add(uint64_t(i), Role(pb::ROLE_PREFILL)));
    for (int i = 11; i <= 10 + ds; ++i) pools.decode.push_back(Add(uint64_t(i), Role(pb::ROLE_DECODE)));
    for (auto& [id, load] : loads_) {
      const int requests = int(rng() % 4);
      for (int i = 0; i < requests; ++i) load.Dispatched({std::to_string(i), 1}, {1 + int(rng() % 60), 9});
    }
    for (Candidate& p : pools.prefill) p.cached_tokens = int(rng() % 50);
    std::map<std::pair<uint64_t, uint64_t>, bool> up;
    for (int i = 1; i <= ps; ++i) {
      for (int j = 11; j <= 10 + ds; ++j) up[{uint64_t(i), uint64_t(j)}] = rng() % 3 != 0;
    }
    pools.pair = [&](uint64_t p, uint64_t d) { return up[{p, d}] ? PairState::kUp : PairState::kUnknown; };
    const Demand demand{60, 20};
    // With one pair up at a time, its placement is that pair; the explained numbers are not parsed: costs are compared
    // by who wins against whom.
    const Placement all = Place(pools, demand, {}, false, rng);
    for (const auto& [pair, is_up] : up) {
      if (!is_up || all.kind != Placement::Kind::kPlace) continue;
      Pools two = pools;
      two.pair = [&](uint64_t p, uint64_t d) {
        const bool one = std::pair(p, d) == pair || std::pair(p, d) == std::pair(all.prefill, all.decode);
        return one ? PairState::kUp : PairState::kUnknown;
      };
      int won = 0;
      for (int i = 0; i < 12; ++i) {
        const Placement best = Place(two, demand, {}, false, rng);
        won += best.prefill == all.prefill && best.decode == all.decode;
      }
      EXPECT_GT(won, 0) << "pair " << pair.first << ", " << pair.second << " beats " << all.prefill << ", "
                        << all.decode;
    }
  }
}

TEST(StepTimeTest, LearnsALineThatAlwaysRises) {
  StepTime one(5);
  EXPECT_DOUBLE_EQ(one.At(1), 5);
  EXPECT_DOUBLE_EQ(one.At(6), 10) << "a fifth for each further row, where only one was seen";
  StepTime line;
  EXPECT_FALSE(line.known());
  for (int i = 0; i < 500; ++i) line.Add(1 + i % 16, 4 + 1.5 * (1 + i % 16));
  EXPECT_NEAR(line.At(8), 16, 1e-6);
  EXPECT_NEAR(line.At(32), 52, 1e-6);
  for (int i = 0; i < 500; ++i) line.Add(1 + i % 16, 10 - 0.5 * (i % 16));
  EXPECT_LT(line.At(1), line.At(16)) << "more rows never take less";
}

// Of two workers of which one seems a little faster, both get work.
TEST_F(PairPolicyTest, NoiseInWhatWasLearnedDoesNotHideTheLoad) {
  for (int i = 0; i < 50; ++i) {
    for (const auto& [worker, ms] : {std::pair(11, 30.0), std::pair(12, 33.0)}) {
      pb::WorkerReport report = Report(1000, 0);
      report.set_running(1);
      report.set_step_ms(ms);
      loads_[uint64_t(worker)].Report(report);
    }
  }
  std::map<uint64_t, int> placed;
  for (int i = 0; i < 8; ++i) {
    const uint64_t decode = Placed({10, 100}).decode;
    loads_[decode].Dispatched({std::to_string(i), 1}, {10, 100});
    ++placed[decode];
  }
  EXPECT_GE(placed[11], 3);
  EXPECT_GE(placed[12], 3);
}

TEST(LoadModelTest, LearnsWhatAPromptsTokenTakes) {
  WorkerLoad load(Role(pb::ROLE_PREFILL));
  EXPECT_DOUBLE_EQ(load.ms_per_prompt_token(), 1) << "unknown";
  pb::WorkerReport report = Report(100, 0);
  for (int i = 1; i <= 20; ++i) {
    report.mutable_engine()->set_rows(uint64_t(1000 * i));
    report.mutable_engine()->set_execute_seconds(0.25 * i);
    load.Report(report);
  }
  EXPECT_NEAR(load.ms_per_prompt_token(), 0.25, 1e-9);
  pb::WorkerInfo info = Role(pb::ROLE_PREFILL);
  info.set_prefill_tokens_per_s(2000);
  EXPECT_DOUBLE_EQ(WorkerLoad(info).ms_per_prompt_token(), 0.5) << "as measured at its start";
}

TEST(LoadModelTest, WhatIsCachedIsNoBacklog) {
  WorkerLoad load(Role(pb::ROLE_PREFILL));
  load.Dispatched({"a", 1}, {100, 0}, 64);
  EXPECT_EQ(load.prompt_backlog(), 36);
  load.Computed({"a", 1}, 80);
  EXPECT_EQ(load.prompt_backlog(), 20);
}

TEST_F(PolicyTest, ExplainsWithNumbers) {
  const Candidate candidate = Add(1, Info(100));
  loads_[1].Dispatched({"a", 1}, {20, 30});
  EXPECT_THAT(
      Place(Both({candidate}), {16, 4}, {}, true, rng_).explanation,
      HasSubstr("[w: ttft 36.0 ms = (backlog 20 + prompt 16 - credit 0 of 0 cached) x 1.000 ms; tpot 2.00 ms with "
                "2 sequences; blocks 96 of 100 free, needs 2; 1 requests]"));
}

}  // namespace
}  // namespace sluice::router
