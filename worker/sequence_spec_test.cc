#include "worker/sequence_spec.h"

#include <cmath>
#include <functional>
#include <limits>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/testing/messages.h"

namespace sluice::worker {
namespace {

constexpr int kVocab = 100;

TEST(SequenceSpec, CarriesEverything) {
  v1::SequenceSpec spec = Spec(5, 7);
  spec.add_tokens(11);  // emitted before
  spec.set_priority(-3);
  spec.add_eos_token_ids(2);
  v1::SamplingParams& p = *spec.mutable_sampling();
  p.set_temperature(0.7f);
  p.set_top_p(0.9f);
  p.set_top_k(40);
  p.set_min_p(0.05f);
  p.set_seed(123);
  p.set_logprobs(3);
  p.set_min_tokens(2);
  p.set_ignore_eos(true);
  p.add_stop_token_ids(4);
  spec.set_cache_salt("of one tenant");
  p.set_n(3);
  p.set_repetition_penalty(1.1f);
  p.set_presence_penalty(-0.5f);
  p.set_frequency_penalty(0.25f);
  for (const int id : {70, 3, 99, 0, 8}) (*p.mutable_logit_bias())[id] = float(id) / 2;
  const auto request = ToEngineRequest(spec, kVocab);
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(request->tokens.size(), 6u);
  EXPECT_EQ(request->num_prompt_tokens, 5);
  EXPECT_EQ(request->priority, -3);
  EXPECT_EQ(request->n, 3);
  EXPECT_EQ(request->cache_salt, "of one tenant");
  const engine::SamplingParams& s = request->sampling;
  EXPECT_EQ(s.temperature, 0.7f);
  EXPECT_EQ(s.top_p, 0.9f);
  EXPECT_EQ(s.top_k, 40);
  EXPECT_EQ(s.min_p, 0.05f);
  EXPECT_EQ(s.seed, 123u);
  EXPECT_EQ(s.logprobs, 3);
  EXPECT_EQ(s.max_tokens, 7);
  EXPECT_EQ(s.min_tokens, 2);
  EXPECT_TRUE(s.ignore_eos);
  EXPECT_EQ(s.eos_ids, std::vector<int32_t>{2});
  EXPECT_EQ(s.stop_ids, std::vector<int32_t>{4});
  EXPECT_EQ(s.repetition_penalty, 1.1f);
  EXPECT_EQ(s.presence_penalty, -0.5f);
  EXPECT_EQ(s.frequency_penalty, 0.25f);
  EXPECT_THAT(s.logit_bias, testing::ElementsAre(testing::Pair(0, 0.0f), testing::Pair(3, 1.5f), testing::Pair(8, 4.0f),
                                                 testing::Pair(70, 35.0f), testing::Pair(99, 49.5f)));
}

TEST(SequenceSpec, AbsentMeansTheDefault) {
  const auto request = ToEngineRequest(Spec(5, 7), kVocab);
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(request->n, 1);
  EXPECT_EQ(request->sampling.temperature, 0.0f);
  EXPECT_EQ(request->sampling.top_p, 1.0f);
  EXPECT_EQ(request->sampling.top_k, 0);
  EXPECT_EQ(request->sampling.logprobs, -1);
  EXPECT_FALSE(request->sampling.penalizes());
  EXPECT_TRUE(request->sampling.logit_bias.empty());
}

struct BadCase {
  std::string field;
  std::function<void(v1::SequenceSpec&)> spoil;
};

TEST(SequenceSpec, NamesTheFieldThatIsWrong) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const BadCase cases[] = {
      {"tokens", [](auto& s) { s.clear_tokens(); }},
      {"tokens", [](auto& s) { s.set_tokens(1, kVocab); }},
      {"tokens", [](auto& s) { s.set_tokens(1, -1); }},
      {"num_prompt_tokens", [](auto& s) { s.set_num_prompt_tokens(0); }},
      {"num_prompt_tokens", [](auto& s) { s.set_num_prompt_tokens(6); }},
      {"eos_token_ids", [](auto& s) { s.add_eos_token_ids(kVocab); }},
      {"adapter", [](auto& s) { s.set_adapter("x"); }},
      {"task", [](auto& s) { s.set_task("embed"); }},
      {"choice", [](auto& s) { s.set_choice(-1); }},
      {"choice", [](auto& s) { s.set_choice(128); }},
      {"sampling.n", [](auto& s) { s.mutable_sampling()->set_n(17); }},
      {"sampling.repetition_penalty", [](auto& s) { s.mutable_sampling()->set_repetition_penalty(kNan); }},
      {"sampling.repetition_penalty", [](auto& s) { s.mutable_sampling()->set_repetition_penalty(0); }},
      {"sampling.presence_penalty", [](auto& s) { s.mutable_sampling()->set_presence_penalty(kInf); }},
      {"sampling.frequency_penalty", [](auto& s) { s.mutable_sampling()->set_frequency_penalty(kNan); }},
      {"sampling.logit_bias", [](auto& s) { (*s.mutable_sampling()->mutable_logit_bias())[1] = kNan; }},
      {"sampling.logit_bias", [](auto& s) { (*s.mutable_sampling()->mutable_logit_bias())[kVocab] = 1; }},
      {"sampling.logit_bias", [](auto& s) { (*s.mutable_sampling()->mutable_logit_bias())[-1] = 1; }},
      {"sampling.n", [](auto& s) { s.mutable_sampling()->set_n(0); }},
      {"sampling.prompt_logprobs", [](auto& s) { s.mutable_sampling()->set_prompt_logprobs(-1); }},
      {"sampling.prompt_logprobs", [](auto& s) { s.mutable_sampling()->set_prompt_logprobs(21); }},
      {"sampling.prompt_logprobs",
       [](auto& s) {
         for (int i = 0; i < 50000; ++i) s.add_tokens(1);
         s.set_num_prompt_tokens(50000);
         s.mutable_sampling()->set_prompt_logprobs(20);
       }},
      {"sampling.temperature", [](auto& s) { s.mutable_sampling()->set_temperature(-0.1f); }},
      {"sampling.temperature", [](auto& s) { s.mutable_sampling()->set_temperature(kNan); }},
      {"sampling.temperature", [](auto& s) { s.mutable_sampling()->set_temperature(kInf); }},
      {"sampling.top_p", [](auto& s) { s.mutable_sampling()->set_top_p(kNan); }},
      {"sampling.top_p", [](auto& s) { s.mutable_sampling()->set_top_p(0); }},
      {"sampling.top_p", [](auto& s) { s.mutable_sampling()->set_top_p(1.01f); }},
      {"sampling.top_k", [](auto& s) { s.mutable_sampling()->set_top_k(-2); }},
      {"sampling.min_p", [](auto& s) { s.mutable_sampling()->set_min_p(kNan); }},
      {"sampling.min_p", [](auto& s) { s.mutable_sampling()->set_min_p(-1); }},
      {"sampling.logprobs", [](auto& s) { s.mutable_sampling()->set_logprobs(-1); }},
      {"sampling.logprobs", [](auto& s) { s.mutable_sampling()->set_logprobs(1000000); }},
      {"sampling.min_tokens", [](auto& s) { s.mutable_sampling()->set_min_tokens(-1); }},
      {"sampling.max_tokens", [](auto& s) { s.mutable_sampling()->set_max_tokens(-5); }},
      {"sampling.max_tokens", [](auto& s) { s.mutable_sampling()->clear_max_tokens(); }},
      {"sampling.stop_token_ids", [](auto& s) { s.mutable_sampling()->add_stop_token_ids(-1); }},
  };
  for (const BadCase& bad : cases) {
    v1::SequenceSpec spec = Spec(5, 7);
    bad.spoil(spec);
    const auto request = ToEngineRequest(spec, kVocab);
    ASSERT_EQ(request.status().code(), absl::StatusCode::kInvalidArgument) << bad.field;
    EXPECT_THAT(std::string(request.status().message()), testing::StartsWith(bad.field + ":"));
  }
}

}  // namespace
}  // namespace sluice::worker
