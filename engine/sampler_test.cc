#include "engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <vector>

#include "engine/deterministic_math.h"
#include "engine/keyed_random.h"
#include "engine/sampler_loops.h"
#include "engine/testing/exact_sampling.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backend.h"

namespace sluice::engine {
namespace {

using testing::ElementsAre;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

Sampled SampleOf(std::vector<float> logits, const SamplingParams& params, SampleKey key = {}, int generated = 0) {
  return Sample(logits, params, key, generated);
}

TEST(Sampler, GreedyTakesTheBestAndTheLowerIdOfEquals) {
  EXPECT_EQ(SampleOf({1, 3, 2}, {}).token, 1);
  EXPECT_EQ(SampleOf({1, 3, 2, 3, 3}, {}).token, 1);
  EXPECT_EQ(SampleOf({0, 0, 0}, {}).token, 0);
}

const std::vector<float> kLogits = {0.3f, 2.0f, -1.0f, 1.5f, 1.5f, 0.0f, -0.5f, 2.2f, 1.0f, -1.5f, 0.7f};

TEST(Sampler, ANucleusOfThousandsOfTokens) {
  std::vector<float> logits(5000);
  std::mt19937 random(3);
  for (float& x : logits) x = float(random() % 1000) / 500.0f;
  const SamplingParams params{.temperature = 1.0f, .top_p = 0.7f};
  const std::vector<double> exact = ExactProbabilities(logits, params);
  for (int i = 0; i < 3000; ++i) EXPECT_GT(exact[SampleOf(logits, params, {5, 0, i}).token], 0.0);
}

TEST(Sampler, TheDrawDependsOnItsKeyAlone) {
  const SamplingParams params{.temperature = 1.0f};
  std::map<int, int> seen;
  for (int i = 0; i < 50; ++i) {
    const SampleKey key{7, 0, i};
    const int32_t token = SampleOf(kLogits, params, key).token;
    EXPECT_EQ(SampleOf(kLogits, params, key, 3).token, token);
    ++seen[token];
  }
  EXPECT_GT(seen.size(), 3u);
  // A token outside the cut leaves the draw among the others as it is.
  for (int i = 0; i < 200; ++i) {
    const SampleKey key{7, 0, i};
    const int32_t all = SampleOf(kLogits, params, key).token;
    const int32_t top5 = SampleOf(kLogits, {.temperature = 1.0f, .top_k = 5}, key).token;
    const bool among_top5 = all == 7 || all == 1 || all == 3 || all == 4 || all == 8;
    if (among_top5) {
      EXPECT_EQ(top5, all);
    }
  }
}

// Golden: these tokens may never change, or a replay would go on with another answer. Origin: a separate
// Python program of the definition, argmax of logit - log(-log(u)) with Philox written from the paper.
TEST(Sampler, KeysKeepTheirMeaning) {
  std::vector<int> tokens;
  for (int i = 0; i < 16; ++i) tokens.push_back(SampleOf(kLogits, {.temperature = 1.0f}, {42, 1, i}).token);
  EXPECT_THAT(tokens, ElementsAre(10, 1, 7, 4, 3, 7, 7, 1, 4, 8, 0, 8, 3, 3, 1, 1));
}

// Thousands of tokens, so that every path over the whole vocabulary runs; the definition, one number at a time.
TEST(Sampler, DrawsTheSmallestExponentialOfTheVocabulary) {
  std::mt19937 random(11);
  for (int vocab : {1, 2, 7, 511, 512, 513, 5000}) {
    std::vector<float> logits(vocab);
    for (float& x : logits) x = float(random() % 1000) / 80.0f;
    for (const SamplingParams& params : std::vector<SamplingParams>{{.temperature = 1.0f},
                                                                    {.temperature = 30.0f},
                                                                    {.temperature = 2.0f, .top_k = 300},
                                                                    {.temperature = 2.0f, .top_p = 0.8f},
                                                                    {.temperature = 2.0f, .min_p = 0.01f}}) {
      const std::vector<double> p = ExactProbabilities(logits, params);
      for (int i = 0; i < 20; ++i) {
        KeyedUniform uniform({.seed = 3, .choice = 1, .position = uint32_t(i)});
        int best = -1;
        double least = 0;
        for (int id = 0; id < vocab; ++id) {
          const double e = p[id] > 0 ? -DetLog(uniform(id)) / p[id] : std::numeric_limits<double>::infinity();
          if (best < 0 || e < least) best = id, least = e;
        }
        EXPECT_EQ(SampleOf(logits, params, {3, 1, i}).token, best) << vocab << " tokens";
      }
    }
  }
}

TEST(Sampler, TheBestOfManyAreThoseOfASort) {
  std::mt19937 random(12);
  std::vector<float> logits(3000);
  for (float& x : logits) x = float(int(random() % 200) - 100) / 16.0f;  // many equals
  logits[5] = -0.0f;
  logits[6] = -kInf;
  logits[7] = kInf;
  std::vector<int> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return logits[a] > logits[b]; });
  for (int count : {0, 1, 20, 64, 65, 100, 1500, 2999, 3000, 5000}) {
    const Sampled s = SampleOf(logits, {.logprobs = count});
    ASSERT_EQ(s.top.size(), size_t(std::min(count, 3000)));
    for (size_t i = 0; i < s.top.size(); ++i) ASSERT_EQ(s.top[i].first, order[i]) << count;
  }
}

TEST(Sampler, PenaltiesAndBiasChangeTheGreedyChoice) {
  const auto greedy = [](const SamplingParams& p, const TokenCounts& counts) {
    std::vector<float> row = {2.0f, 1.8f, 1.0f, -1.0f};
    return Sample(row, p, {}, 0, &counts).token;
  };
  const TokenCounts prompt_only(std::vector<int32_t>{0}, 1), twice(std::vector<int32_t>{3, 0, 0}, 1);
  EXPECT_EQ(greedy({.repetition_penalty = 1.2f}, prompt_only), 1);
  EXPECT_EQ(greedy({.presence_penalty = 1.0f}, prompt_only), 0) << "the prompt is no part of the answer";
  EXPECT_EQ(greedy({.presence_penalty = 0.15f}, twice), 0);
  EXPECT_EQ(greedy({.presence_penalty = 0.25f}, twice), 1);
  EXPECT_EQ(greedy({.frequency_penalty = 0.09f}, twice), 0);
  EXPECT_EQ(greedy({.frequency_penalty = 0.11f}, twice), 1);
  EXPECT_EQ(greedy({.repetition_penalty = 0.1f}, TokenCounts(std::vector<int32_t>{2}, 1)), 2);
  EXPECT_EQ(greedy({.logit_bias = {{-1, 9.0f}, {3, 4.0f}, {4, 9.0f}}}, {}), 3) << "unknown ids never occur";
  EXPECT_EQ(greedy({.presence_penalty = -2.0f}, TokenCounts(std::vector<int32_t>{77, -3}, 0)), 0);
}

TEST(Sampler, TakesItsEditsBack) {
  const std::vector<float> before = {0.5f, -2.0f, 3.0f, kInf, -kInf, 1.0f};
  std::vector<float> row = before;
  const TokenCounts counts(std::vector<int32_t>{0, 1, 2, 3, 4, 2}, 2);
  const SamplingParams params{.temperature = 1.0f,
                              .repetition_penalty = 1.7f,
                              .presence_penalty = 0.3f,
                              .frequency_penalty = 0.1f,
                              .min_tokens = 9,
                              .stop_ids = {2, 3},
                              .logit_bias = {{2, 1.1f}, {3, 5.0f}}};
  Sample(row, params, {}, 4, &counts);
  EXPECT_EQ(row, before);
}

// Of the model's distribution, not of the one that is drawn from.
TEST(Sampler, LogprobsKnowNoBiasAndNoPenalty) {
  std::vector<float> row = kLogits;
  const TokenCounts counts(std::vector<int32_t>{7, 1}, 0);
  const SamplingParams params{
      .repetition_penalty = 3.0f, .presence_penalty = 2.0f, .logprobs = 2, .logit_bias = {{10, 50.0f}}};
  const Sampled changed = Sample(row, params, {}, 2, &counts);
  EXPECT_EQ(changed.token, 10);
  const Sampled plain = Score(row, 10, 2);
  EXPECT_EQ(changed.logprob, plain.logprob);
  EXPECT_EQ(changed.top, plain.top);
}

TEST(Sampler, AGivenTokenHasTheLogprobOfASampledOne) {
  std::vector<float> row = kLogits;
  const Sampled sampled = Sample(row, {.logprobs = 4}, {}, 0);
  const Sampled given = Score(row, sampled.token, 4);
  EXPECT_EQ(given.token, sampled.token);
  EXPECT_EQ(given.logprob, sampled.logprob);
  EXPECT_EQ(given.top, sampled.top);
  double sum = 0;
  for (int id = 0; id < int(row.size()); ++id) sum += std::exp(double(Score(row, id, 0).logprob));
  EXPECT_NEAR(sum, 1.0, 1e-6);
  std::vector<float> nans = {kNan, 0.0f};
  EXPECT_EQ(Score(nans, 0, 0).logprob, -kInf);
}

TEST(Sampler, MinTokensMasksEosAndStopIds) {
  SamplingParams params{.min_tokens = 2, .eos_ids = {1, 77}, .stop_ids = {2, -5, 1}};
  EXPECT_EQ(SampleOf({0, 9, 8, 1}, params, {}, 0).token, 3);
  EXPECT_EQ(SampleOf({0, 9, 8, 1}, params, {}, 1).token, 3);
  EXPECT_EQ(SampleOf({0, 9, 8, 1}, params, {}, 2).token, 1);
  params.temperature = 1.0f;
  for (int i = 0; i < 200; ++i) {
    const int32_t token = SampleOf({0, 9, 8, 1}, params, {1, 0, i}, 1).token;
    EXPECT_TRUE(token == 0 || token == 3);
  }
}

TEST(Sampler, LogprobsAreOfTheUnmodifiedDistribution) {
  SamplingParams params{.temperature = 0.1f, .top_k = 1, .logprobs = 3, .min_tokens = 1, .eos_ids = {7}};
  const Sampled s = SampleOf(kLogits, params);
  double sum = 0;
  for (float x : kLogits) sum += std::exp(double(x));
  const auto logprob = [&](int id) { return float(double(kLogits[id]) - std::log(sum)); };
  EXPECT_EQ(s.token, 1);  // 7 is better, but masked
  EXPECT_NEAR(s.logprob, logprob(1), 1e-6);
  ASSERT_EQ(s.top.size(), 3u);
  const int best[] = {7, 1, 3};  // 3 and 4 are equal: the lower id first
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(s.top[i].first, best[i]);
    EXPECT_NEAR(s.top[i].second, logprob(best[i]), 1e-6);
  }
  params.logprobs = 0;
  EXPECT_TRUE(SampleOf(kLogits, params).top.empty());
  EXPECT_NEAR(SampleOf(kLogits, params).logprob, logprob(1), 1e-6);
  params.logprobs = 100;
  EXPECT_EQ(SampleOf(kLogits, params).top.size(), kLogits.size());
}

TEST(Sampler, InfinitiesHaveLogprobsToo) {
  const Sampled both = SampleOf({1, kInf, 2, kInf}, {.logprobs = 4});
  EXPECT_EQ(both.token, 1);
  EXPECT_NEAR(both.logprob, std::log(0.5), 1e-6);
  EXPECT_EQ(both.top[2].second, -kInf);
  const Sampled none = SampleOf({kNan, -kInf, kNan, kNan}, {.logprobs = 1});
  EXPECT_NEAR(none.logprob, std::log(0.25), 1e-6);
}

// Whatever the logits and the parameters, the token is in the vocabulary, and not masked if any is left.
TEST(Sampler, AlwaysGivesAValidToken) {
  const std::vector<std::vector<float>> cases = {
      {kNan, kNan, kNan},
      {kNan, 1, 2},
      {-kInf, -kInf, -kInf},
      {kInf, kInf, 0},
      {kInf, -kInf, kNan},
      {0, 0, 0},
      {1e38f, -1e38f, 3e38f},
      {-3e38f, -3e38f, -3e38f},
      {5},
      {kNan},
      {1e-40f, 0, -1e-40f},
  };
  const std::vector<SamplingParams> params = {
      {},
      {.temperature = 1e-45f},
      {.temperature = 3e38f},
      {.temperature = 1.0f},
      {.temperature = 1.0f, .top_p = 1e-45f},
      {.temperature = 1.0f, .top_p = 0.999999f, .top_k = 2, .min_p = 1.0f},
      {.temperature = 1e-30f, .top_p = 1e-30f, .top_k = 1000000, .min_p = 1e-30f},
      {.temperature = 1e-45f, .min_p = 1e-45f},
      {.temperature = 3e38f, .min_p = 1.0f},
      {.temperature = 1.0f, .repetition_penalty = 1e-45f, .presence_penalty = -3e38f, .frequency_penalty = -3e38f},
      {.temperature = 1.0f, .repetition_penalty = 3e38f, .presence_penalty = 3e38f, .frequency_penalty = 3e38f},
      {.temperature = 1.0f, .logit_bias = {{0, 3e38f}, {1, -3e38f}}},
  };
  for (const auto& logits : cases) {
    for (SamplingParams p : params) {
      for (int logprobs : {-1, 0, 2}) {
        for (bool mask : {false, true}) {
          p.logprobs = logprobs;
          p.min_tokens = mask ? 1 : 0;
          p.stop_ids = mask ? std::vector<int32_t>{0} : std::vector<int32_t>{};
          for (int i = 0; i < 10; ++i) {
            std::vector<float> row = logits;
            const TokenCounts counts(std::vector<int32_t>{0, 0, 1, 1, 1}, 1);
            const Sampled s = Sample(row, p, {3, 0, i}, 0, &counts);
            ASSERT_GE(s.token, 0);
            ASSERT_LT(s.token, int(logits.size()));
            if (mask && logits.size() > 1) {
              ASSERT_NE(s.token, 0);
            }
            ASSERT_FALSE(std::isnan(s.logprob));
          }
        }
      }
    }
  }
}

// The largest of each block, which a backend may bring along, changes nothing: not even where they hold no NaN.
TEST(Sampler, BlockMaximaOnlySaveTime) {
  const std::vector<SamplingParams> params = {
      {},
      {.temperature = 1.0f, .top_k = 1},
      {.temperature = 0.8f, .top_p = 0.9f, .top_k = 40},
      {.temperature = 1.0f, .top_k = 64, .min_p = 0.05f},
      {.temperature = 1.0f, .top_k = 65},
      {.temperature = 1.0f, .min_p = 0.3f},
      {.temperature = 2.0f, .min_p = 1.0f},
      {.temperature = 1.0f, .top_p = 0.5f},
      {.temperature = 1.0f},
      {.temperature = 1.0f, .top_k = 5, .logit_bias = {{3, 4.0f}}},
      {.logprobs = 3},
  };
  for (int seed = 0; seed < 3000; ++seed) {
    std::mt19937 random(seed);
    std::vector<float> row(std::vector<size_t>{1, 40, 64, 65, 200, 5000}[random() % 6]);
    const int nans = random() % 3 == 0 ? 5 : 10000000, scale = random() % 2 == 0 ? 8 : 1000;
    for (float& x : row) {
      x = float(int(random() % (2 * scale)) - scale) / float(scale) * 6;  // with many equals
      if (int(random() % 100) >= nans) x = std::vector<float>{kNan, -kInf, kInf}[random() % 20 == 0 ? 2 : random() % 2];
    }
    std::vector<float> clean = row, maxima(size_t(kernels::NumLogitBlocks(int64_t(row.size()))));
    CleanAndMax(clean, maxima);
    const SamplingParams& p = params[random() % params.size()];
    std::vector<float> plain = row;
    const SampleKey key{random(), 0, seed};
    const Sampled expected = Sample(plain, p, key, 0), got = Sample(row, p, key, 0, nullptr, maxima);
    ASSERT_EQ(got.token, expected.token) << "seed " << seed;
    ASSERT_EQ(got.logprob, expected.logprob) << "seed " << seed;
  }
}

TEST(Sampler, ATinyTemperatureIsGreedy) {
  for (int i = 0; i < 100; ++i) EXPECT_EQ(SampleOf(kLogits, {.temperature = 1e-30f}, {1, 0, i}).token, 7);
}

TEST(Sampler, LeavesTheLogitsOfOthersAlone) {
  std::vector<float> rows = {1, 2, 3, 9, 9, 9};
  Sample(std::span(rows).first(3), {.temperature = 1.0f, .min_tokens = 1, .stop_ids = {0, 1, 2}}, {}, 0);
  EXPECT_THAT(std::vector<float>(rows.begin() + 3, rows.end()), ElementsAre(9, 9, 9));
}

}  // namespace
}  // namespace sluice::engine
