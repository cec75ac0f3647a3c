// Ten thousand seeds of a small cluster in trouble, a thousand events of the core each: whatever breaks, every
// invariant holds, every answer is right, and nothing is left. A failing seed is printed; SLUICE_SEED=N runs it alone,
// with all that the core hears and says (SLUICE_SEEDS=FIRST:COUNT: many others, without).
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "simulation/fault_run.h"

namespace sluice::simulation {
namespace {

constexpr uint64_t kSeeds = 10000;
constexpr uint64_t kParts = 8;

struct Sum {
  int64_t events = 0, requests = 0, good = 0, innocent = 0, exhausted = 0, full = 0;
  Counters counters;
};

void Add(const FaultRunResult& run, Sum& sum) {
  sum.events += run.events;
  sum.requests += run.requests;
  sum.good += run.good;
  sum.innocent += run.innocent;
  sum.exhausted += run.exhausted;
  sum.full += run.full;
  for (const auto& [name, count] : run.counters) sum.counters[name] += count;
}

void Print(const Sum& sum) {
  std::cout << sum.events << " events, " << sum.requests << " requests, " << sum.good << " answered; of "
            << sum.innocent << " whose workers alone could fail them and of whom a pair lived, " << sum.full
            << " were turned away by a full queue and " << sum.exhausted << " had all the moves that one may have\n";
  for (const auto& [name, count] : sum.counters) std::cout << "  " << name << ": " << count << "\n";
}

// Every kind of fault was there and did something.
constexpr const char* kMustHappen[] = {
    "KV link cut",
    "announce stream cut",
    "clients that went away",
    "crashed in silence",
    "crashed, connections reset",
    "deadlines passed",
    "drained",
    "drained by the router",
    "events of old attempts",
    "leases expired",
    "moves of requests",
    "pairs lost",
    "requests failed at a worker",
    "requests for several answers",
    "requests refused by a worker",
    "requests that came with a part of their answer",
    "restarted",
    "router and worker partitioned",
    "router shut down",
    "router stood still",
    "shut down with a goodbye",
    "slow link between workers",
    "slow link to the router",
    "slowed down",
    "stood still",
    "stop strings found",
    "stuck in a step",
    "tokens found in a prefix cache",
    "tokens of D before P's first",
    "transfers lost or corrupt",
    "work stream cut",
    "workers partitioned",
};

void RunSeeds(uint64_t first, uint64_t count, bool trace) {
  Sum sum;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    const FaultRunResult run = RunWithFaults({.seed = seed, .trace = trace});
    Add(run, sum);
    ASSERT_EQ(run.violation, "") << "seed " << seed << " (" << run.cluster << "); SLUICE_SEED=" << seed
                                 << " replays it; digest " << run.digest;
  }
  Print(sum);
  if (count < kSeeds / kParts) return;
  for (const char* name : kMustHappen) EXPECT_GT(sum.counters[name], 0) << name;
  EXPECT_GT(sum.good * 3, sum.requests) << "the faults must leave enough to be answered";
  EXPECT_GT(sum.innocent * 4, sum.requests);
  EXPECT_LT(sum.exhausted * 200, sum.innocent) << "moves are for accidents";
}

class SimulationFaultsTest : public ::testing::TestWithParam<uint64_t> {};

TEST_P(SimulationFaultsTest, NothingIsLost) {
  if (const char* seed = std::getenv("SLUICE_SEED"); seed != nullptr) {
    uint64_t number = 0;
    ASSERT_TRUE(absl::SimpleAtoi(seed, &number));
    if (GetParam() == 0) RunSeeds(number, 1, true);
    return;
  }
  if (const char* seeds = std::getenv("SLUICE_SEEDS"); seeds != nullptr) {
    const std::vector<std::string> parts = absl::StrSplit(seeds, ':');
    uint64_t first = 0, count = 0;
    ASSERT_TRUE(parts.size() == 2 && absl::SimpleAtoi(parts[0], &first) && absl::SimpleAtoi(parts[1], &count));
    const uint64_t share = count / kParts;
    RunSeeds(first + GetParam() * share, share, false);
    return;
  }
  RunSeeds(1 + GetParam() * (kSeeds / kParts), kSeeds / kParts, false);
}

INSTANTIATE_TEST_SUITE_P(Seeds, SimulationFaultsTest, ::testing::Range<uint64_t>(0, kParts));

TEST(SimulationFaultsReplayTest, ASeedGivesTheSameRunAgain) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const FaultRunResult one = RunWithFaults({.seed = seed});
    const FaultRunResult two = RunWithFaults({.seed = seed});
    EXPECT_EQ(one.digest, two.digest) << "seed " << seed;
    EXPECT_EQ(one.events, two.events) << "seed " << seed;
    EXPECT_NE(one.digest, RunWithFaults({.seed = seed + 1000}).digest) << "seed " << seed;
  }
}

}  // namespace
}  // namespace sluice::simulation
