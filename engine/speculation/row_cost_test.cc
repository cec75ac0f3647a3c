#include "engine/speculation/row_cost.h"

#include <random>

#include "engine/speculation/expected_gain.h"
#include "gtest/gtest.h"

namespace sluice::engine {
namespace {

constexpr double kInitial = 0.3;

// b / (a + b * rows) of each of the rows: the exact answer for a machine of that line.
double Exact(double a, double b, int rows) {
  return b * rows / (a + b * rows);
}

TEST(RowCost, KnowsNothingAtFirst) {
  RowCost cost(kInitial);
  EXPECT_EQ(cost.Share(1), kInitial);
  for (int i = 0; i < 100; ++i) cost.Report(4, 0.01);
  EXPECT_EQ(cost.Share(4), kInitial) << "one size says nothing about another";
  cost.Report(5, 5.0);
  EXPECT_EQ(cost.Share(4), kInitial) << "nor does a single step";
}

TEST(RowCost, LearnsALineFromNoisySteps) {
  std::mt19937_64 random(3);
  std::normal_distribution<double> noise(1.0, 0.05);
  for (const double b : {0.0, 0.01, 0.41, 5.0}) {
    RowCost cost(kInitial);
    for (int i = 0; i < 2000; ++i) {
      const int rows = 1 + int(random() % 12);
      cost.Report(rows, (1.0 + b * rows) * noise(random));
    }
    for (const int rows : {1, 2, 8, 12}) EXPECT_NEAR(cost.Share(rows), Exact(1.0, b, rows), 0.06) << b << " " << rows;
  }
}

TEST(RowCost, ExactWithoutNoise) {
  RowCost cost(kInitial);
  for (int i = 0; i < 3; ++i) cost.Report(1, 1.41), cost.Report(5, 1 + 5 * 0.41);
  EXPECT_NEAR(cost.Share(1), 0.41 / 1.41, 1e-9);
  EXPECT_NEAR(cost.Share(8), 8 * 0.41 / (1 + 8 * 0.41), 1e-9);
}

// A device that computes up to 64 rows in the time of one, and then in proportion.
TEST(RowCost, SizesNearbyCount) {
  RowCost cost(kInitial);
  for (int i = 0; i < 50; ++i) {
    for (int rows = 1; rows <= 512; rows *= 2) cost.Report(rows, std::max(1.0, rows / 64.0));
  }
  EXPECT_LT(cost.Share(4), 0.1);
  EXPECT_GT(cost.Share(400), 0.8);
}

TEST(RowCost, InterruptionsCountLittle) {
  RowCost cost(kInitial);
  for (int i = 0; i < 1000; ++i) {
    const int rows = 1 + i % 3;
    cost.Report(rows, i % 50 == 49 ? 100.0 : 1.0 + 0.4 * rows);
  }
  EXPECT_NEAR(cost.Share(1), Exact(1.0, 0.4, 1), 0.12);
}

TEST(RowCost, FollowsAChange) {
  RowCost cost(kInitial);
  for (int i = 0; i < 300; ++i) cost.Report(1 + i % 4, 1.0);
  for (int i = 0; i < 400; ++i) cost.Report(1 + i % 4, 1.0 * (1 + i % 4));
  EXPECT_NEAR(cost.Share(2), 1.0, 0.05);
}

TEST(RowCost, ForgetsSizesNotSeenForLong) {
  RowCost cost(kInitial);
  for (int i = 0; i < 10; ++i) cost.Report(1, 1.0), cost.Report(4, 4.0);
  EXPECT_NEAR(cost.Share(1), 1.0, 1e-9);
  for (int i = 0; i < 2001; ++i) cost.Report(1, 10.0);  // contexts have grown; of four rows we know nothing now
  EXPECT_EQ(cost.Share(1), kInitial);
}

// Never a cost below zero or a number that is none, whatever is reported.
TEST(RowCost, AlwaysANumber) {
  std::mt19937_64 random(5);
  RowCost cost(kInitial);
  for (int i = 0; i < 20000; ++i) {
    cost.Report(1 + int(random() % (i % 2 == 0 ? 8 : 100000)), double(random() % 1000) * 1e-6);
    const int rows = 1 + int(random() % 5000);
    const double share = cost.Share(rows);
    ASSERT_TRUE(share >= 0.0 && share < 1e12) << share;
    ASSERT_GE(BestDraftLength(0.9, share, 8), 0);
  }
}

}  // namespace
}  // namespace sluice::engine
