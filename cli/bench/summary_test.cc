#include "cli/bench/summary.h"

#include "gtest/gtest.h"

namespace sluice::cli::bench {
namespace {

// Tokens at these times; scheduled and sent at 0.
Record Done(const std::vector<double>& times, double scheduled = 0) {
  Record record;
  record.scheduled_s = record.sent_s = scheduled;
  record.first_s = times.front();
  record.last_s = record.ended_s = times.back();
  for (size_t i = 1; i < times.size(); ++i) record.gaps_ms.push_back((times[i] - times[i - 1]) * 1000);
  record.output_tokens = record.wanted_tokens = int(times.size());
  record.outcome = Outcome::kDone;
  return record;
}

TEST(SummaryTest, PercentilesInterpolate) {
  const std::vector<double> values = {1, 2, 3, 4};
  EXPECT_DOUBLE_EQ(Percentile(values, 0), 1);
  EXPECT_DOUBLE_EQ(Percentile(values, 0.5), 2.5);
  EXPECT_DOUBLE_EQ(Percentile(values, 0.9), 3.7);
  EXPECT_DOUBLE_EQ(Percentile(values, 1), 4);
  EXPECT_DOUBLE_EQ(Percentile({5}, 0.99), 5);
}

// What a script of others needs at least for a share of 0.90: 35 of 35, and 73 of 73 for 0.95.
TEST(SummaryTest, WilsonsInterval) {
  EXPECT_GE(Wilson(35, 35).low, 0.90);
  EXPECT_LT(Wilson(34, 34).low, 0.90);
  EXPECT_GE(Wilson(73, 73).low, 0.95);
  EXPECT_LT(Wilson(72, 72).low, 0.95);
  EXPECT_DOUBLE_EQ(Wilson(35, 35).high, 1);
  EXPECT_NEAR(Wilson(180, 200).low, 0.8506, 1e-4);
  EXPECT_NEAR(Wilson(180, 200).high, 0.9344, 1e-4);
  EXPECT_EQ(Wilson(0, 10).low, 0);
  EXPECT_EQ(Wilson(0, 0).low, 0);
  EXPECT_EQ(Wilson(0, 0).high, 1);
}

TEST(SummaryTest, TimesCountFromTheScheduledArrival) {
  Record record = Done({1.5, 1.6, 1.9}, 1.0);
  record.sent_s = 1.2;
  const Summary summary = Summarize({record}, {});
  EXPECT_NEAR(summary.ttft_ms.p50, 500, 1e-9);
  EXPECT_NEAR(summary.tpot_ms.p50, 200, 1e-9);
  EXPECT_NEAR(summary.e2e_ms.p50, 900, 1e-9);
  EXPECT_NEAR(summary.largest_gap_ms.p50, 300, 1e-9);
  EXPECT_NEAR(summary.first_gap_ms.p50, 100, 1e-9);
  EXPECT_NEAR(summary.slip_ms.max, 200, 1e-9);
  EXPECT_EQ(summary.itl_ms.n, 2);
}

TEST(SummaryTest, GoodOfOfferedAndWhoIsNeither) {
  const Slo slo{100, 50};
  Record failed;
  failed.sent_s = 0;
  failed.outcome = Outcome::kFailed;
  Record abandoned = Done({0.01, 0.02});
  abandoned.outcome = Outcome::kAbandoned;
  const Record never_sent;
  const Record slow_first = Done({0.2, 0.21}), slow_rest = Done({0.05, 0.15}), good = Done({0.05, 0.06});
  const Record one_token = Done({0.1});  // exactly the limit is met
  EXPECT_TRUE(IsGood(one_token, slo));
  EXPECT_FALSE(IsGood(slow_first, slo));
  EXPECT_FALSE(IsGood(slow_rest, slo));
  EXPECT_TRUE(IsGood(slow_first, {}));
  const Summary summary = Summarize({failed, abandoned, never_sent, slow_first, slow_rest, good, one_token}, slo);
  EXPECT_EQ(summary.offered, 6);
  EXPECT_EQ(summary.done, 4);
  EXPECT_EQ(summary.failed, 1);
  EXPECT_EQ(summary.abandoned, 1);
  EXPECT_EQ(summary.good, 2);
  EXPECT_DOUBLE_EQ(summary.attainment, 2.0 / 6);
  EXPECT_EQ(summary.tpot_ms.n, 3) << "an answer of one token has no pace";
  EXPECT_EQ(summary.ttft_ms.n, 4) << "of those that were done";
}

TEST(SummaryTest, RatesAndTokens) {
  Record early = Done({0.5, 1.0}), late = Done({2.5, 4.0}, 2.0);
  late.wanted_tokens = 3;
  const Summary summary = Summarize({early, late}, {});
  EXPECT_DOUBLE_EQ(summary.duration_s, 4);
  EXPECT_DOUBLE_EQ(summary.offered_rate, 0.5);
  EXPECT_DOUBLE_EQ(summary.done_rate, 0.5);
  EXPECT_DOUBLE_EQ(summary.output_tokens_per_s, 1);
  EXPECT_EQ(summary.short_answers, 1);
  EXPECT_EQ(Summarize({}, {}).offered, 0);
}

}  // namespace
}  // namespace sluice::cli::bench
