#include "router/request_metrics.h"

#include <gtest/gtest.h>

#include <random>

namespace sluice::router {
namespace {

TEST(Histogram, EveryValueIsInItsBucket) {
  static constexpr Histogram<3>::Bounds kBounds = {1, 2, 4};
  Histogram<3> histogram(kBounds);
  for (const double value : {0.0, 1.0, 1.5, 2.0, 4.0, 4.1, 100.0}) histogram.Observe(value);
  EXPECT_EQ(histogram.counts(), (std::array<uint64_t, 4>{2, 2, 1, 2}));
  EXPECT_EQ(histogram.count(), 7u);
  EXPECT_DOUBLE_EQ(histogram.sum(), 112.6);
}

// Bounds that do not ascend would lose values.
TEST(RequestMetrics, BoundsAscend) {
  const RequestMetrics metrics;
  const auto ascend = [](const auto& bounds) { return std::is_sorted(bounds.begin(), bounds.end()); };
  EXPECT_TRUE(ascend(metrics.ttft.bounds()) && ascend(metrics.inter_token.bounds()) &&
              ascend(metrics.prompt_length.bounds()));
}

TEST(RequestMetrics, TokensAsTheyCome) {
  RequestMetrics metrics;
  metrics.FirstToken(absl::Milliseconds(120));
  metrics.Tokens(1, std::nullopt);
  metrics.Tokens(1, absl::Milliseconds(10));
  metrics.Tokens(3, absl::Milliseconds(30));  // a step that brings several is one
  EXPECT_EQ(metrics.generation_tokens, 5u);
  EXPECT_EQ(metrics.inter_token.count(), 2u);
  EXPECT_NEAR(metrics.inter_token.sum(), 0.04, 1e-9);
  EXPECT_NEAR(metrics.ttft.sum(), 0.12, 1e-9);
}

TEST(RequestMetrics, HowRequestsEnd) {
  RequestMetrics metrics;
  pb::GenerateResponse last;
  last.add_choices()->set_finish_reason(pb::FINISH_REASON_LENGTH);
  last.mutable_usage()->set_prompt_tokens(7);
  last.mutable_usage()->set_cached_tokens(4);
  last.mutable_usage()->set_completion_tokens(9);
  last.mutable_timing()->set_total_ms(500);
  metrics.Succeeded(last);
  EXPECT_EQ(metrics.finished[pb::FINISH_REASON_LENGTH], 1u);
  EXPECT_EQ(metrics.prompt_tokens, 7u);
  EXPECT_EQ(metrics.cached_tokens, 4u);
  EXPECT_EQ(metrics.per_output_token.count(), 0u) << "an answer of one token has none";
  ClientEnd end;
  end.status = absl::UnavailableError("gone");
  metrics.Failed(end);
  end.refusal = RefusalReason::kQueueFull;
  metrics.Failed(end);
  EXPECT_EQ(metrics.failed[size_t(absl::StatusCode::kUnavailable)], 1u);
  EXPECT_EQ(metrics.core_refused[size_t(RefusalReason::kQueueFull)], 1u);
  EXPECT_STREQ(CodeName(size_t(absl::StatusCode::kUnavailable)), "unavailable");
  EXPECT_STREQ(CodeName(size_t(absl::StatusCode::kUnauthenticated)), "unauthenticated");
  EXPECT_STREQ(RefusalName(size_t(RefusalReason::kShutdown)), "shutdown");
}

}  // namespace
}  // namespace sluice::router
