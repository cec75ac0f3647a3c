#include "engine/sampling_params.h"

#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice::engine {
namespace {

TEST(SamplingParams, ValidateNamesTheField) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInf = std::numeric_limits<float>::infinity();
  const std::vector<std::pair<std::string, SamplingParams>> cases = {
      {"temperature", {.temperature = -1.0f, .max_tokens = 1}},
      {"top_p", {.top_p = 0.0f, .max_tokens = 1}},
      {"top_k", {.top_k = -1, .max_tokens = 1}},
      {"min_p", {.min_p = kNan, .max_tokens = 1}},
      {"repetition_penalty", {.repetition_penalty = 0.0f, .max_tokens = 1}},
      {"repetition_penalty", {.repetition_penalty = kNan, .max_tokens = 1}},
      {"repetition_penalty", {.repetition_penalty = kInf, .max_tokens = 1}},
      {"presence_penalty", {.presence_penalty = kNan, .max_tokens = 1}},
      {"frequency_penalty", {.frequency_penalty = -kInf, .max_tokens = 1}},
      {"logit_bias", {.max_tokens = 1, .logit_bias = {{1, kInf}}}},
      {"logit_bias", {.max_tokens = 1, .logit_bias = {{2, 1.0f}, {1, 1.0f}}}},
      {"logit_bias", {.max_tokens = 1, .logit_bias = {{1, 1.0f}, {1, 1.0f}}}},
      {"logprobs", {.logprobs = -2, .max_tokens = 1}},
      {"max_tokens", {}},
      {"min_tokens", {.max_tokens = 1, .min_tokens = -1}},
      {"min_tokens", {.max_tokens = 1, .min_tokens = 2}},
  };
  for (const auto& [field, params] : cases) {
    EXPECT_THAT(std::string(Validate(params).message()), testing::StartsWith("sampling." + field + " is ")) << field;
  }
  EXPECT_TRUE(Validate({.temperature = 1.0f,
                        .repetition_penalty = 1.1f,
                        .presence_penalty = -2.0f,
                        .frequency_penalty = 2.0f,
                        .max_tokens = 3,
                        .min_tokens = 3,
                        .logit_bias = {{-1, 1.0f}, {0, -100.0f}, {1 << 30, 100.0f}}})
                  .ok());
}

TEST(SamplingParams, AnAnswerEndsByEosStopOrLength) {
  const SamplingParams p{.max_tokens = 4, .min_tokens = 2, .eos_ids = {1}, .stop_ids = {2}};
  EXPECT_EQ(FinishAfter(p, 0, 3), FinishReason::kNone);
  EXPECT_EQ(FinishAfter(p, 0, 4), FinishReason::kLength);
  EXPECT_EQ(FinishAfter(p, 1, 3), FinishReason::kStop);
  EXPECT_EQ(FinishAfter(p, 2, 4), FinishReason::kStop) << "a stop at the last token is a stop";
  EXPECT_EQ(FinishAfter(p, 1, 2), FinishReason::kNone) << "the second token is not after min_tokens";
  SamplingParams ignoring = p;
  ignoring.ignore_eos = true;
  EXPECT_EQ(FinishAfter(ignoring, 1, 3), FinishReason::kNone);
  EXPECT_EQ(FinishAfter(ignoring, 2, 3), FinishReason::kStop);
}

}  // namespace
}  // namespace sluice::engine
