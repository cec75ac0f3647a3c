#include "engine/speculation/expected_gain.h"

#include <cmath>

#include "gtest/gtest.h"

namespace sluice::engine {
namespace {

// The figures are the published ones of the independence formula.
TEST(ExpectedGain, ReproducesTheWorkedExamples) {
  EXPECT_NEAR(ExpectedTokens(0.84, 4), 3.636, 0.03);
  EXPECT_NEAR(ExpectedTokens(0.567, 4), 2.17, 0.01);
  const double expected[] = {1.55, 1.825, 1.95, 1.98, 1.96, 1.91};
  for (int k = 1; k <= 6; ++k) EXPECT_NEAR(SpeedUp(0.7, 0.1, k), expected[k - 1], 0.01) << k;
  EXPECT_EQ(BestDraftLength(0.7, 0.1, 6), 4);
}

TEST(ExpectedGain, IsTheClosedFormAndItsLimits) {
  for (double a : {0.0, 0.3, 0.9}) {
    for (int k : {0, 1, 7}) EXPECT_NEAR(ExpectedTokens(a, k), (1 - std::pow(a, k + 1)) / (1 - a), 1e-12);
  }
  EXPECT_EQ(ExpectedTokens(1.0, 5), 6.0);
  EXPECT_EQ(BestDraftLength(1.0, 0.1, 8), 8);
  EXPECT_EQ(BestDraftLength(0.9, 0.1, 0), 0);
  EXPECT_EQ(BestDraftLength(0.1, 0.1, 8), 0) << "one draft breaks even at a = c, and breaking even does not pay";
  EXPECT_EQ(BestDraftLength(0.11, 0.1, 8), 1);
  EXPECT_EQ(BestDraftLength(0.0, 0.0, 8), 0);
}

}  // namespace
}  // namespace sluice::engine
