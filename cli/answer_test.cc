#include "cli/answer.h"

#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace sluice::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

v1::GenerateResponse Response(const std::string& text) {
  v1::GenerateResponse response;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &response)) << text;
  return response;
}

Answer Example() {
  Answer answer;
  EXPECT_EQ(answer.Add(Response(R"(request_id: "r1" prompt { token_ids: [1, 2] seed: 9 model: "m" })")), "");
  EXPECT_EQ(answer.Add(Response(R"(choices { text: " Pa" token_ids: 7
                                   logprobs { sampled { token_id: 7 logprob: -0.25 } top { token_id: 8 logprob: -2 } } })")),
            " Pa");
  EXPECT_EQ(answer.Add(Response(R"(choices { token_ids: 8 logprobs { sampled { token_id: 8 logprob: -0.5 } } })")), "");
  EXPECT_FALSE(answer.finished());
  EXPECT_EQ(answer.Add(Response(R"(choices { text: "ris" token_ids: 2 logprobs { sampled { token_id: 2 logprob: 0 } }
                                   finish_reason: FINISH_REASON_STOP })")),
            "ris");
  answer.Add(Response(R"(usage { prompt_tokens: 2 completion_tokens: 3 }
                         timing { queue_ms: 1 ttft_ms: 10 tpot_ms: 20 total_ms: 50
                                  timeline { name: "first_token" at_ms: 10 worker: "w:1" } })"));
  return answer;
}

TEST(AnswerTest, JsonCarriesWhatTheDesignNames) {
  nlohmann::json out = Example().ToJson();
  EXPECT_EQ(out["text"], " Paris");
  EXPECT_EQ(out["prompt_token_ids"], nlohmann::json({1, 2}));
  EXPECT_EQ(out["token_ids"], nlohmann::json({7, 8, 2}));
  EXPECT_EQ(out["logprobs"], nlohmann::json({-0.25, -0.5, 0.0}));
  EXPECT_EQ(out["top_logprobs"][0][0]["token_id"], 8);
  EXPECT_EQ(out["finish_reason"], "stop");
  EXPECT_EQ(out["usage"]["completion_tokens"], 3);
  EXPECT_EQ(out["timing"]["ttft_ms"], 10.0);
  EXPECT_EQ(out["timing"]["timeline"][0]["name"], "first_token");
  EXPECT_EQ(out["seed"], 9u);
}

TEST(AnswerTest, ThePromptsLogprobsAreParallelToItsTokens) {
  Answer answer = Example();
  EXPECT_FALSE(answer.ToJson().contains("prompt_logprobs"));
  answer = Answer();
  answer.Add(Response(
      R"(prompt { token_ids: [1, 2, 3] seed: 9 model: "m" logprobs { sampled { token_id: 2 logprob: -1 } } })"));
  answer.Add(
      Response(R"(prompt { logprobs { sampled { token_id: 3 logprob: -2 } top { token_id: 4 logprob: -0.5 } } })"));
  const nlohmann::json out = answer.ToJson();
  EXPECT_EQ(out["prompt_token_ids"], nlohmann::json({1, 2, 3}));
  EXPECT_EQ(out["seed"], 9u);
  EXPECT_EQ(out["prompt_logprobs"], nlohmann::json({nullptr, -1.0, -2.0}));
  EXPECT_EQ(out["prompt_top_logprobs"], nlohmann::json::parse(R"([null, [], [{"token_id": 4, "logprob": -0.5}]])"));
}

TEST(AnswerTest, JsonOfAnEmptyAnswerKeepsItsShape) {
  nlohmann::json out = Answer().ToJson();
  EXPECT_EQ(out["token_ids"], nlohmann::json::array());
  EXPECT_EQ(out["logprobs"], nlohmann::json::array());
  EXPECT_EQ(out["prompt_token_ids"], nlohmann::json::array());
  EXPECT_EQ(out["finish_reason"], "");
  EXPECT_FALSE(out.contains("top_logprobs"));
}

TEST(AnswerTest, EveryChoiceKeepsItsOwn) {
  Answer answer;
  EXPECT_EQ(answer.Add(Response(R"(choices { index: 1 text: "b" token_ids: 5 logprobs { sampled { logprob: -1 } } })")),
            "");
  EXPECT_EQ(answer.Add(Response(R"(choices { index: 0 text: "a" token_ids: 6 } choices { index: 1 text: "c" })")), "a");
  answer.Add(Response(R"(choices { index: 99 text: "nobody asked for that" })"));
  answer.Add(Response(R"(choices { index: 0 finish_reason: FINISH_REASON_STOP })"));
  EXPECT_FALSE(answer.finished());
  answer.Add(Response(R"(choices { index: 1 finish_reason: FINISH_REASON_LENGTH })"));
  EXPECT_TRUE(answer.finished());
  const nlohmann::json out = answer.ToJson();
  EXPECT_EQ(out["text"], "a");
  EXPECT_EQ(out["token_ids"], nlohmann::json({6}));
  EXPECT_EQ(out["finish_reason"], "stop");
  ASSERT_EQ(out["choices"].size(), 2u);
  EXPECT_EQ(out["choices"][0]["text"], "a");
  EXPECT_EQ(out["choices"][1]["index"], 1);
  EXPECT_EQ(out["choices"][1]["text"], "bc");
  EXPECT_EQ(out["choices"][1]["token_ids"], nlohmann::json({5}));
  EXPECT_EQ(out["choices"][1]["logprobs"], nlohmann::json({-1.0}));
  EXPECT_EQ(out["choices"][1]["finish_reason"], "length");
  EXPECT_EQ(answer.AllTexts(), "--- answer 0\na\n--- answer 1\nbc\n");
}

TEST(AnswerTest, StatsSayTheTwoFiguresAndTheTimeline) {
  const std::string stats = Example().Stats(12.5);
  EXPECT_THAT(stats, HasSubstr("TTFT 10.0 ms (text seen here after 12.5 ms)"));
  EXPECT_THAT(stats, HasSubstr("TPOT 20.00 ms (50.0 tokens/s)"));
  EXPECT_THAT(stats, HasSubstr("2 prompt (0 cached) + 3 generated, finished by stop"));
  EXPECT_THAT(stats, HasSubstr("first_token"));
  EXPECT_THAT(Answer().Stats(std::nullopt), Not(HasSubstr("tokens/s")));
}

}  // namespace
}  // namespace sluice::cli
