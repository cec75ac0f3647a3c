#include "cli/bench/goodput_search.h"

#include "gtest/gtest.h"

namespace sluice::cli::bench {
namespace {

// Of a cluster that is good up to a rate.
GoodputSearch SearchBelow(double limit, GoodputOptions options) {
  GoodputSearch search(options);
  while (const std::optional<double> rate = search.Next()) search.Took(*rate, *rate <= limit ? 200 : 100, 200);
  return search;
}

TEST(GoodputSearchTest, FindsTheLimitFromBothSides) {
  for (const double limit : {0.013, 0.9, 1.0, 7.3, 400.0}) {
    const GoodputSearch search = SearchBelow(limit, {});
    ASSERT_NE(search.best(), nullptr) << limit;
    EXPECT_LE(search.best()->rate, limit);
    EXPECT_GT(search.best()->rate * 1.05, limit * 0.9999);
    ASSERT_NE(search.worst(), nullptr);
    EXPECT_GT(search.worst()->rate, limit);
  }
}

TEST(GoodputSearchTest, EndsWhereNothingIsGoodOrEverything) {
  const GoodputSearch never = SearchBelow(0, {.most_tries = 6});
  EXPECT_EQ(never.best(), nullptr);
  EXPECT_EQ(never.tries().size(), 6u);
  const GoodputSearch always = SearchBelow(1e30, {.most_tries = 6});
  EXPECT_EQ(always.worst(), nullptr);
  EXPECT_EQ(always.best()->rate, 32);
}

TEST(GoodputSearchTest, ExactlyTheShareIsKept) {
  GoodputSearch search({});
  search.Took(1, 180, 200);
  EXPECT_TRUE(search.tries()[0].kept);
  search.Took(2, 179, 200);
  EXPECT_FALSE(search.tries()[1].kept);
  EXPECT_NEAR(search.tries()[0].interval.low, 0.8506, 1e-4);
}

TEST(GoodputSearchTest, LuckAboveAFailedRateDoesNotCount) {
  GoodputSearch search({});
  search.Took(4, 200, 200);
  search.Took(2, 0, 200);
  search.Took(1, 200, 200);
  EXPECT_EQ(search.best()->rate, 1);
  EXPECT_EQ(search.worst()->rate, 2);
  EXPECT_NEAR(*search.Next(), 1.41421, 1e-4);
}

}  // namespace
}  // namespace sluice::cli::bench
