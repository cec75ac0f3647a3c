#include "cli/bench/arrivals.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "gtest/gtest.h"

namespace sluice::cli::bench {
namespace {

struct Moments {
  double mean = 0, cv = 0;
};

Moments OfGaps(const std::vector<double>& times) {
  double sum = 0, squares = 0;
  for (size_t i = 1; i < times.size(); ++i) {
    const double gap = times[i] - times[i - 1];
    sum += gap;
    squares += gap * gap;
  }
  const double n = double(times.size() - 1), mean = sum / n;
  return {mean, std::sqrt(squares / n - mean * mean) / mean};
}

TEST(ArrivalsTest, RateAndCoefficientOfVariationAreThoseAsked) {
  for (const double burstiness : {0.25, 0.5, 1.0, 2.0, 9.0}) {
    simulation::Rng rng(7);
    const std::vector<double> times = Arrivals(200001, 50, burstiness, rng);
    EXPECT_EQ(times.front(), 0);
    EXPECT_TRUE(std::is_sorted(times.begin(), times.end()));
    const Moments gaps = OfGaps(times);
    // Five standard deviations of a mean of 200,000 gaps; the cv's own error is of the same order.
    const double cv = 1 / std::sqrt(burstiness);
    EXPECT_NEAR(gaps.mean, 0.02, 5 * 0.02 * cv / std::sqrt(200000.0)) << burstiness;
    EXPECT_NEAR(gaps.cv, cv, 0.03 * cv) << burstiness;
  }
}

// Of a Poisson process a share of exp(-1) of the gaps is longer than the mean.
TEST(ArrivalsTest, BurstinessOneIsPoisson) {
  simulation::Rng rng(3);
  const std::vector<double> times = Arrivals(100001, 10, 1, rng);
  int longer = 0;
  for (size_t i = 1; i < times.size(); ++i) longer += times[i] - times[i - 1] > 0.1;
  EXPECT_NEAR(longer / 100000.0, std::exp(-1), 5 * std::sqrt(0.368 * 0.632 / 100000));
}

TEST(ArrivalsTest, SeedsDecideAndInfinityIsAllAtOnce) {
  simulation::Rng one(1), again(1), other(2);
  const std::vector<double> times = Arrivals(50, 3, 0.7, one);
  EXPECT_EQ(times, Arrivals(50, 3, 0.7, again));
  EXPECT_NE(times, Arrivals(50, 3, 0.7, other));
  EXPECT_EQ(Arrivals(3, std::numeric_limits<double>::infinity(), 1, one), std::vector<double>(3, 0.0));
}

}  // namespace
}  // namespace sluice::cli::bench
