#include "cli/bench/http_words.h"

#include "cli/bench/sse.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace sluice::cli::bench {
namespace {

using nlohmann::json;
using testing::ElementsAre;

TEST(SseTest, EventsInAnyPieces) {
  const std::string stream =
      ": a comment\r\ndata: {\"a\": 1}\r\n\r\nevent: x\ndata:two\ndata: lines\n\n\n\ndata: [DONE]\n\n";
  for (size_t piece = 1; piece <= stream.size(); ++piece) {
    SseParser parser;
    std::vector<std::string> events;
    for (size_t at = 0; at < stream.size(); at += piece) {
      for (std::string& event : parser.Add(std::string_view(stream).substr(at, piece))) events.push_back(event);
    }
    ASSERT_THAT(events, ElementsAre("{\"a\": 1}", "two\nlines", "[DONE]")) << piece;
  }
}

TEST(SseTest, AnEventThatIsNotWholeIsNone) {
  SseParser parser;
  EXPECT_THAT(parser.Add("data: half\n"), ElementsAre());
  EXPECT_THAT(parser.Add("\n"), ElementsAre("half"));
}

TEST(HttpWordsTest, BodiesOfBothApis) {
  const HttpQuestion question{"m", {1, 2, 3}, 7, 0.5, 9, true};
  const json completions = json::parse(HttpBody(HttpApi::kCompletions, question));
  EXPECT_EQ(completions["prompt"], json({1, 2, 3}));
  EXPECT_EQ(completions["max_tokens"], 7);
  EXPECT_EQ(completions["ignore_eos"], true);
  EXPECT_EQ(completions["stream_options"]["include_usage"], true);
  const json chat = json::parse(HttpBody(HttpApi::kChat, question));
  EXPECT_EQ(chat["messages"][0]["content"], "year people way");
  EXPECT_FALSE(chat.contains("prompt"));
}

TEST(HttpWordsTest, EventsOfBothApis) {
  EXPECT_TRUE(ReadHttpEvent(R"({"choices": [{"text": "a"}]})")->text);
  EXPECT_TRUE(ReadHttpEvent(R"({"choices": [{"delta": {"content": "a"}}]})")->text);
  EXPECT_FALSE(ReadHttpEvent(R"({"choices": [{"delta": {"role": "assistant", "content": ""}}]})")->text);
  EXPECT_FALSE(ReadHttpEvent(R"({"choices": [{"text": "", "finish_reason": "stop"}]})")->text);
  EXPECT_TRUE(ReadHttpEvent("[DONE]")->done);
  const auto usage = ReadHttpEvent(
      R"({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 6, "prompt_tokens_details": {"cached_tokens": 4}}})");
  EXPECT_EQ(usage->prompt_tokens, 5);
  EXPECT_EQ(usage->completion_tokens, 6);
  EXPECT_EQ(usage->cached_tokens, 4);
  EXPECT_EQ(ReadHttpEvent(R"({"choices": [], "usage": null})")->prompt_tokens, -1);
  EXPECT_EQ(ReadHttpEvent(R"({"error": {"message": "no room"}})")->error, "no room");
  EXPECT_FALSE(ReadHttpEvent("nonsense").ok());
  EXPECT_FALSE(ReadHttpEvent("[1]").ok());
}

TEST(HttpWordsTest, ErrorsOnALine) {
  EXPECT_EQ(HttpErrorText(429, R"({"error": {"message": "the queue\nis full"}})"), "HTTP 429: the queue is full");
  EXPECT_EQ(HttpErrorText(502, "<html>"), "HTTP 502: <html>");
  EXPECT_EQ(HttpErrorText(500, ""), "HTTP 500");
  EXPECT_EQ(VocabularyOf("token_ids.ids: ids must be in [0, 49152), got 2147483647 at position 0"), 49152);
  EXPECT_EQ(VocabularyOf("something else"), 0);
}

}  // namespace
}  // namespace sluice::cli::bench
