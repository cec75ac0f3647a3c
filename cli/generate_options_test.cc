#include "cli/generate_options.h"

#include <cmath>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ParseTokenIdsTest, ReadsAListWithSpaces) {
  EXPECT_THAT(*ParseTokenIds("1, 2,-3"), ElementsAre(1, 2, -3));
}

TEST(ParseTokenIdsTest, NamesThePieceThatIsNoId) {
  for (const char* bad : {"1,x,2", "1,,2", "99999999999", "1,2,"}) {
    absl::StatusOr<std::vector<int32_t>> ids = ParseTokenIds(bad);
    ASSERT_FALSE(ids.ok()) << bad;
    EXPECT_THAT(ids.status().message(), HasSubstr("--token-ids")) << bad;
  }
}

TEST(ParseBiasesTest, ReadsPairsAndNamesThePieceThatIsNone) {
  EXPECT_THAT(*ParseBiases("5:1.5,7:-100"), ElementsAre(::testing::Pair(5, 1.5f), ::testing::Pair(7, -100.0f)));
  for (const char* bad : {"5", "5:", ":1", "x:1", "5:x", "5:1,", "5:1:2"}) {
    EXPECT_THAT(std::string(ParseBiases(bad).status().message()), HasSubstr("--logit-bias")) << bad;
  }
}

TEST(MakeRequestTest, LeavesAbsentWhatWasNotGiven) {
  GenerateOptions options;
  options.prompt = "hello";
  v1::GenerateRequest request = *MakeRequest(options);
  EXPECT_EQ(request.chat().messages(), R"([{"content":"hello","role":"user"}])");
  const v1::SamplingParams& sampling = request.sampling();
  EXPECT_FALSE(sampling.has_temperature());
  EXPECT_FALSE(sampling.has_top_p());
  EXPECT_FALSE(sampling.has_top_k());
  EXPECT_FALSE(sampling.has_seed());
  EXPECT_FALSE(sampling.has_logprobs());
  EXPECT_FALSE(sampling.has_ignore_eos());
  EXPECT_FALSE(sampling.has_min_p() || sampling.has_repetition_penalty() || sampling.has_presence_penalty() ||
               sampling.has_frequency_penalty() || sampling.has_min_tokens() || sampling.has_prompt_logprobs() ||
               sampling.has_n());
  EXPECT_FALSE(request.has_timeout_ms());
  EXPECT_EQ(sampling.max_tokens(), 128);
}

TEST(MakeRequestTest, RawTextIsNoConversation) {
  GenerateOptions options;
  options.prompt = "<|im_start|>";
  options.raw = true;
  EXPECT_EQ(MakeRequest(options)->text(), "<|im_start|>");
  options.raw = false;
  EXPECT_TRUE(MakeRequest(options)->has_chat());
  options.max_tokens.reset();
  EXPECT_FALSE(MakeRequest(options)->sampling().has_max_tokens());
}

TEST(MakeRequestTest, OnlyAMissingTemplateMakesAConversationText) {
  EXPECT_TRUE(HasNoTemplate("messages: the model has no chat template"));
  EXPECT_FALSE(HasNoTemplate("messages[0].content: the model has no chat template"));
  EXPECT_FALSE(HasNoTemplate("messages: line 3 of the template: what is that?"));
}

TEST(MakeRequestTest, PassesEverythingOnUnchecked) {
  GenerateOptions options;
  options.token_ids = "5,6";
  options.temperature = -1.0f;  // the router's to refuse
  options.top_p = 0.5f;
  options.top_k = -7;
  options.max_tokens = -2;
  options.seed = ~uint64_t{0};
  options.stop = {"a", "b"};
  options.logprobs = 3;
  options.ignore_eos = true;
  options.min_p = 0.1f;
  options.repetition_penalty = 1.2f;
  options.presence_penalty = 0.3f;
  options.frequency_penalty = -9;
  options.logit_bias = {"1:2,3:4", "5:-6"};
  options.min_tokens = 2;
  options.stop_token_ids = "8,9";
  options.prompt_logprobs = 1;
  options.n = 4;
  options.timeout_s = 0.0005;
  v1::GenerateRequest request = *MakeRequest(options);
  EXPECT_THAT(request.token_ids().ids(), ElementsAre(5, 6));
  const v1::SamplingParams& sampling = request.sampling();
  EXPECT_EQ(sampling.temperature(), -1.0f);
  EXPECT_EQ(sampling.top_p(), 0.5f);
  EXPECT_EQ(sampling.top_k(), -7);
  EXPECT_EQ(sampling.max_tokens(), -2);
  EXPECT_EQ(sampling.seed(), ~uint64_t{0});
  EXPECT_THAT(sampling.stop(), ElementsAre("a", "b"));
  EXPECT_EQ(sampling.logprobs(), 3);
  EXPECT_TRUE(sampling.ignore_eos());
  EXPECT_EQ(sampling.min_p(), 0.1f);
  EXPECT_EQ(sampling.repetition_penalty(), 1.2f);
  EXPECT_EQ(sampling.presence_penalty(), 0.3f);
  EXPECT_EQ(sampling.frequency_penalty(), -9.0f);
  EXPECT_THAT(sampling.logit_bias(), ::testing::UnorderedElementsAre(::testing::Pair(1, 2.0f), ::testing::Pair(3, 4.0f),
                                                                     ::testing::Pair(5, -6.0f)));
  EXPECT_EQ(sampling.min_tokens(), 2);
  EXPECT_THAT(sampling.stop_token_ids(), ElementsAre(8, 9));
  EXPECT_EQ(sampling.prompt_logprobs(), 1);
  EXPECT_EQ(sampling.n(), 4);
  EXPECT_EQ(request.timeout_ms(), 1);
}

TEST(MakeRequestTest, RefusesListsThatAreNone) {
  GenerateOptions options;
  options.prompt = "x";
  options.stop_token_ids = "1,b";
  EXPECT_THAT(std::string(MakeRequest(options).status().message()), HasSubstr("--stop-token-ids"));
  options.stop_token_ids.clear();
  options.logit_bias = {"1=2"};
  EXPECT_THAT(std::string(MakeRequest(options).status().message()), HasSubstr("--logit-bias"));
}

TEST(MakeRequestTest, JsonAsksForTheChosenTokensLogprobs) {
  GenerateOptions options;
  options.prompt = "x";
  options.json = true;
  v1::GenerateRequest request = *MakeRequest(options);
  ASSERT_TRUE(request.sampling().has_logprobs());
  EXPECT_EQ(request.sampling().logprobs(), 0);
  options.logprobs = 4;
  EXPECT_EQ(MakeRequest(options)->sampling().logprobs(), 4);
}

TEST(MakeRequestTest, RefusesATimeoutThatIsNone) {
  GenerateOptions options;
  options.prompt = "x";
  for (double bad : {0.0, -1.0, 1e12, static_cast<double>(NAN)}) {
    options.timeout_s = bad;
    EXPECT_FALSE(MakeRequest(options).ok()) << bad;
  }
}

}  // namespace
}  // namespace sluice::cli
