// Chi-square of every transform, alone and together, against exact probabilities.
#include <cmath>
#include <vector>

#include "engine/sampler.h"
#include "engine/testing/exact_sampling.h"
#include "gtest/gtest.h"

namespace sluice::engine {
namespace {

constexpr int kDraws = 100000;

const std::vector<float> kLogits = {0.3f, 2.0f, -1.0f, 1.5f, 1.5f, 0.0f, -0.5f, 2.2f, 1.0f, -1.5f, 0.7f};

const Said kSaid = {{0, 1, 1, 2, 9}, {7, 7, 7, 4, 6, 1}};

std::vector<int32_t> Join(const Said& said) {
  std::vector<int32_t> tokens = said.prompt;
  tokens.insert(tokens.end(), said.answer.begin(), said.answer.end());
  return tokens;
}

// Fixed seeds, so the outcome never changes.
void ExpectDistribution(SamplingParams params, const Said& said = {}, const std::vector<float>& logits = kLogits) {
  static uint64_t next_seed = 1000;
  params.seed = next_seed++;
  const std::vector<double> exact = ExactProbabilities(logits, params, said);
  const TokenCounts counts(Join(said), int(said.prompt.size()));
  const TokenCounts* given = params.penalizes() ? &counts : nullptr;
  ExpectDrawsFrom(exact, params.seed, kDraws, [&](int i) {
    std::vector<float> row = logits;
    return Sample(row, params, {params.seed, i % 3, i}, int(said.answer.size()), given).token;
  });
  std::vector<float> row = logits;
  const std::vector<double> said_to_be = Distribution(row, params, int(said.answer.size()), given);
  for (size_t id = 0; id < exact.size(); ++id) EXPECT_NEAR(said_to_be[id], exact[id], 1e-6) << id;
}

TEST(SamplerDistribution, TheTestSeesASmallError) {
  const SamplingParams params{.temperature = 1.0f};
  std::vector<int> count(kLogits.size(), 0);
  for (int i = 0; i < kDraws; ++i) {
    std::vector<float> row = kLogits;
    ++count[Sample(row, params, {1, 0, i}, 0).token];
  }
  EXPECT_TRUE(Compare(count, ExactProbabilities(kLogits, params)).fits());
  EXPECT_FALSE(Compare(count, ExactProbabilities(kLogits, {.temperature = 1.05f})).fits());
  EXPECT_FALSE(Compare(count, ExactProbabilities(kLogits, {.temperature = 1.0f, .top_k = 10})).fits());
}

TEST(SamplerDistribution, Temperature) {
  for (float t : {0.0f, 0.5f, 1.0f, 3.0f}) ExpectDistribution({.temperature = t});
}

TEST(SamplerDistribution, TopK) {
  for (int k : {1, 2, 4, 5, 11, 50}) ExpectDistribution({.temperature = 0.8f, .top_k = k});
}

TEST(SamplerDistribution, TopP) {
  for (float p : {1e-6f, 0.3f, 0.5f, 0.9f, 0.99f}) ExpectDistribution({.temperature = 0.9f, .top_p = p});
}

TEST(SamplerDistribution, MinP) {
  for (float p : {0.05f, 0.3f, 0.6f, 1.0f}) ExpectDistribution({.temperature = 1.1f, .min_p = p});
}

TEST(SamplerDistribution, LogitBias) {
  ExpectDistribution({.temperature = 1.0f, .logit_bias = {{0, 1.5f}, {7, -2.0f}, {9, 0.25f}}});
  ExpectDistribution({.temperature = 1.0f, .logit_bias = {{7, -100.0f}}});
  ExpectDistribution({.temperature = 0.7f, .logit_bias = {{5, 100.0f}}});
}

TEST(SamplerDistribution, RepetitionPenalty) {
  for (float r : {0.6f, 1.3f, 2.0f}) ExpectDistribution({.temperature = 1.0f, .repetition_penalty = r}, kSaid);
}

TEST(SamplerDistribution, PresencePenalty) {
  for (float p : {-0.7f, 0.5f, 2.0f}) ExpectDistribution({.temperature = 1.0f, .presence_penalty = p}, kSaid);
}

TEST(SamplerDistribution, FrequencyPenalty) {
  for (float p : {-0.4f, 0.3f, 1.0f}) ExpectDistribution({.temperature = 1.0f, .frequency_penalty = p}, kSaid);
}

TEST(SamplerDistribution, MinTokens) {
  SamplingParams params{.temperature = 1.0f, .min_tokens = 7, .eos_ids = {7}, .stop_ids = {1, 5}};
  ExpectDistribution(params, kSaid);  // six tokens so far
  params.min_tokens = 6;
  ExpectDistribution(params, kSaid);
}

TEST(SamplerDistribution, TheTransformsWorkTogetherInTheirOrder) {
  ExpectDistribution({.temperature = 1.5f, .top_p = 0.8f, .top_k = 7, .min_p = 0.3f});
  ExpectDistribution({.temperature = 0.7f, .top_p = 0.95f, .top_k = 5, .min_p = 0.1f});
  ExpectDistribution({.temperature = 1.2f, .top_p = 0.9f, .min_p = 0.2f});
  ExpectDistribution({.temperature = 1.2f, .top_k = 6, .min_p = 0.25f});
  ExpectDistribution(
      {.temperature = 0.9f, .repetition_penalty = 1.4f, .presence_penalty = 0.3f, .frequency_penalty = 0.2f}, kSaid);
  // A bias in front of a penalty that multiplies: 1.5 / 1.5, not 0 / 1.5 + 1.5.
  ExpectDistribution({.temperature = 1.0f, .repetition_penalty = 1.5f, .logit_bias = {{1, 1.5f}, {2, 2.0f}}}, kSaid);
  ExpectDistribution({.temperature = 1.3f,
                      .top_p = 0.93f,
                      .top_k = 8,
                      .min_p = 0.05f,
                      .repetition_penalty = 1.2f,
                      .presence_penalty = 0.4f,
                      .frequency_penalty = 0.1f,
                      .min_tokens = 9,
                      .eos_ids = {3},
                      .logit_bias = {{3, 5.0f}, {10, 1.0f}}},
                     kSaid);
}

}  // namespace
}  // namespace sluice::engine
