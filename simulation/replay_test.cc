// Replays are right and repeat, and policies differ where they should. No figure of theirs is a bound.
#include "simulation/replay.h"

#include <gtest/gtest.h>

namespace sluice::simulation {
namespace {

ReplayOptions Options() {
  ReplayOptions options;
  options.prefill = 6;
  options.decode = 2;
  options.requests = 3000;
  WorkerModel model;
  model.blocks = 800;
  model.block_size = 512;
  model.max_running = 64;
  model.max_step_tokens = 8192;
  model.tokens_per_s = 10000;
  model.context_length = 1 << 20;
  model.lease = absl::Seconds(10);
  options.prefill_model = options.decode_model = options.both_model = model;
  options.decode_model.blocks = 2000;
  options.decode_model.steps_at_once = 4;
  return options;
}

std::vector<TraceRequest> Mooncake() {
  return *ReadTraceFile("bench/traces/mooncake_synthetic_2000.jsonl");
}

TEST(ReplayTest, EveryAnswerIsWholeAndRightUnderEachPolicy) {
  const std::vector<TraceRequest> trace = Mooncake();
  ReplayOptions options = Options();
  options.rate = 0.6 * PromptCapacity(options, trace);
  for (router::Policy policy :
       {router::Policy::kSlo, router::Policy::kPrefix, router::Policy::kLeastLoaded, router::Policy::kRoundRobin}) {
    options.policy.policy = policy;
    const ReplayResult result = Replay(options, trace);
    EXPECT_EQ(result.wrong, 0) << router::PolicyName(policy) << ": " << result.first_wrong;
    EXPECT_EQ(result.answered, options.requests) << router::PolicyName(policy);
    EXPECT_GT(result.ttft_ms.p50, 0);
    EXPECT_GE(result.ttft_ms.p99, result.ttft_ms.p50);
    EXPECT_GE(result.prompt_imbalance, 1);
  }
}

TEST(ReplayTest, ASeedGivesTheSameFiguresAgain) {
  const std::vector<TraceRequest> trace = Mooncake();
  ReplayOptions options = Options();
  options.requests = 500;
  options.rate = 2;
  const ReplayResult one = Replay(options, trace);
  const ReplayResult two = Replay(options, trace);
  EXPECT_EQ(one.events, two.events);
  EXPECT_EQ(one.ttft_ms.p99, two.ttft_ms.p99);
  options.seed = 2;
  EXPECT_NE(one.ttft_ms.p99, Replay(options, trace).ttft_ms.p99);
}

TEST(ReplayTest, PrefixesAreFoundWhereTheyAreLookedFor) {
  const std::vector<TraceRequest> trace = Mooncake();
  ReplayOptions options = Options();
  options.rate = 0.5 * PromptCapacity(options, trace);
  options.policy.policy = router::Policy::kPrefix;
  const double looked_for = Replay(options, trace).hit_share;
  options.policy.policy = router::Policy::kRoundRobin;
  EXPECT_GT(looked_for, 1.2 * Replay(options, trace).hit_share);
}

}  // namespace
}  // namespace sluice::simulation
