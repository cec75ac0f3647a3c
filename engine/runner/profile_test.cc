#include "engine/runner/profile.h"

#include <algorithm>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice::engine {
namespace {

using testing::ElementsAre;

// A device whose steps take base + rows * per_row seconds, the first one `cold` more.
struct Device {
  double base = 0.002, per_row = 0.001, cold = 0;
  double now = 100;
  std::vector<int> rows;  // of each step; equal ones in a row once
  int largest_block = -1;
  int steps = 0;
  int fail_at = -1;

  absl::StatusOr<EngineProfile> Measure(const ProfileLimits& limits) {
    return MeasureProfile(
        limits,
        [this](StepWork& step) {
          if (steps == fail_at) return absl::InternalError("a launch failed");
          if (rows.empty() || rows.back() != int(step.inputs.tokens.size())) {
            rows.push_back(int(step.inputs.tokens.size()));
          }
          for (const int32_t block : step.inputs.block_table) largest_block = std::max(largest_block, block);
          now += base + rows.back() * per_row + (++steps == 1 ? cold : 0);
          return absl::OkStatus();
        },
        [this] { return now; });
  }
};

const ProfileLimits kLimits{
    .block_size = 16, .num_blocks = 100, .max_context = 1000, .max_step_tokens = 128, .vocab = 50, .seconds = 1};

TEST(Profile, MeasuresOneRowAndTheLargestChunk) {
  Device device{.cold = 0.3};
  const auto profile = device.Measure(kLimits);
  ASSERT_TRUE(profile.ok());
  EXPECT_THAT(device.rows, ElementsAre(1, 16, 128, 1));
  EXPECT_NEAR(profile->decode_step_ms, 3, 1e-6);  // not the cold one
  EXPECT_NEAR(profile->prefill_tokens_per_s, 128 / 0.130, 1e-6);
  EXPECT_EQ(device.largest_block, 7);
}

TEST(Profile, StaysWithinItsTime) {
  for (double seconds : {0.0, 0.01, 0.05, 0.1, 0.2, 0.5}) {
    Device device{.base = 0.01, .per_row = 0.001};
    ProfileLimits limits = kLimits;
    limits.seconds = seconds;
    ASSERT_TRUE(device.Measure(limits).ok());
    // Beside the first step; what the second one and the first chunk cost is a guess.
    EXPECT_LE(device.now - 100 - 0.011, seconds + 0.0083) << seconds;
  }
}

// A step has a price of its own, so few rows at once seem slower than a whole step would be.
TEST(Profile, WithoutTimeForAWholeStepItIsExtrapolated) {
  Device device{.base = 0.01, .per_row = 0.001};
  ProfileLimits limits = kLimits;
  limits.seconds = 0.1;
  const auto profile = device.Measure(limits);
  ASSERT_TRUE(profile.ok());
  EXPECT_LT(*std::max_element(device.rows.begin(), device.rows.end()), 128);
  EXPECT_NEAR(profile->prefill_tokens_per_s, 128 / 0.138, 1e-6);
}

TEST(Profile, ASlowDeviceTellsOfOneStepAlone) {
  Device device{.base = 5};
  const auto profile = device.Measure(kLimits);
  ASSERT_TRUE(profile.ok());
  EXPECT_EQ(device.steps, 1);  // the second would take a quarter of it, at the best
  EXPECT_NEAR(profile->decode_step_ms, 5001, 1e-6);
  EXPECT_EQ(profile->prefill_tokens_per_s, 0);
}

TEST(Profile, FitsSmallPoolsContextsAndSteps) {
  Device pool, context, step;
  ProfileLimits limits = kLimits;
  limits.num_blocks = 1;
  ASSERT_TRUE(pool.Measure(limits).ok());
  EXPECT_EQ(pool.largest_block, 0);
  EXPECT_EQ(*std::max_element(pool.rows.begin(), pool.rows.end()), 16);
  limits = kLimits;
  limits.max_context = 3;
  ASSERT_TRUE(context.Measure(limits).ok());
  EXPECT_EQ(*std::max_element(context.rows.begin(), context.rows.end()), 3);
  limits = kLimits;
  limits.max_step_tokens = 1;
  ASSERT_TRUE(step.Measure(limits).ok());
  EXPECT_EQ(*std::max_element(step.rows.begin(), step.rows.end()), 1);
}

TEST(Profile, AStepsErrorIsItsOwn) {
  Device whole;
  ASSERT_TRUE(whole.Measure(kLimits).ok());
  for (int at = 0; at < whole.steps; ++at) {
    Device device{.fail_at = at};
    EXPECT_EQ(device.Measure(kLimits).status().message(), "a launch failed");
  }
}

TEST(Profile, AScratchStepIsOneSequence) {
  const StepWork step = ScratchStep(3, 20, true, 16, 50);
  EXPECT_EQ(step.inputs.tokens.size(), 17u);
  EXPECT_THAT(step.inputs.row_begin, ElementsAre(0, 17));
  EXPECT_THAT(step.inputs.context_len, ElementsAre(20));
  EXPECT_THAT(step.inputs.block_table, ElementsAre(0, 1));
  EXPECT_THAT(step.inputs.logit_rows, ElementsAre(16));
  EXPECT_TRUE(step.tasks[0].samples);
}

}  // namespace
}  // namespace sluice::engine
