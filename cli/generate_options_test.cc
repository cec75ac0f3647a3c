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

TEST(MakeRequestTest, LeavesAbsentWhatWasNotGiven) {
  GenerateOptions options;
  options.prompt = "hello";
  v1::GenerateRequest request = *MakeRequest(options);
  EXPECT_EQ(request.text(), "hello");
  const v1::SamplingParams& sampling = request.sampling();
  EXPECT_FALSE(sampling.has_temperature());
  EXPECT_FALSE(sampling.has_top_p());
  EXPECT_FALSE(sampling.has_top_k());
  EXPECT_FALSE(sampling.has_seed());
  EXPECT_FALSE(sampling.has_logprobs());
  EXPECT_FALSE(sampling.has_ignore_eos());
  EXPECT_FALSE(request.has_timeout_ms());
  EXPECT_EQ(sampling.max_tokens(), 128);
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
  EXPECT_EQ(request.timeout_ms(), 1);
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
