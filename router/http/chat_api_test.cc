// /v1/chat/completions without sockets: JSON to requests, responses to JSON.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "router/http/chat_answer.h"
#include "router/http/chat_request.h"
#include "router/http/completion_request.h"
#include "router/http/embedded.h"
#include "router/http/info_bodies.h"

namespace sluice::router {
namespace {

using engine::ToolCallStyle;
using ::testing::StartsWith;
using Json = nlohmann::json;

constexpr char kHello[] = R"("messages": [{"role": "user", "content": "Hi"}])";

ApiRequest Parse(const std::string& more) {
  auto parsed = ParseChat(absl::StrCat("{", kHello, more.empty() ? "" : ", ", more, "}"));
  EXPECT_TRUE(parsed.ok()) << more << ": " << parsed.status();
  return parsed.ok() ? *std::move(parsed) : ApiRequest{};
}

std::string Refusal(const std::string& body) {
  const auto parsed = ParseChat(body);
  EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument) << body;
  return std::string(parsed.status().message());
}

// ---- requests ----

TEST(ParseChat, TheConversationStaysAsItIs) {
  const std::string messages =
      R"([{"role":"user","content":[{"type":"text","text":"é\n\"x\""}],"z":1.50,"a":[null,true,-3,1e3,{}]}])";
  const auto parsed = ParseChat(absl::StrCat(R"({"messages": )", messages, R"(, "tools": [{"type": "function"}],
      "chat_template_kwargs": {"k": [1]}, "add_generation_prompt": false})"));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->request.chat().messages(), messages) << "order and numbers as they were spelled";
  EXPECT_EQ(parsed->request.chat().tools(), R"([{"type":"function"}])");
  EXPECT_EQ(parsed->request.chat().template_arguments(), R"({"k":[1]})");
  EXPECT_FALSE(parsed->request.chat().add_generation_prompt());
  EXPECT_TRUE(parsed->use_tools);
}

TEST(ParseChat, Defaults) {
  for (const char* nulls :
       {"", R"("temperature": null, "max_tokens": null, "logprobs": null, "tools": null, "stop": null)"}) {
    const ApiRequest parsed = Parse(nulls);
    EXPECT_EQ(parsed.request.sampling().temperature(), 1.0f);
    EXPECT_FALSE(parsed.request.sampling().has_max_tokens()) << "to the end of the context";
    EXPECT_FALSE(parsed.request.sampling().has_logprobs());
    EXPECT_FALSE(parsed.use_tools);
    EXPECT_FALSE(parsed.stream);
  }
}

TEST(ParseChat, LengthsAndLogprobs) {
  EXPECT_EQ(Parse(R"("max_completion_tokens": 5)").request.sampling().max_tokens(), 5);
  EXPECT_EQ(Parse(R"("max_completion_tokens": 5, "max_tokens": 5)").request.sampling().max_tokens(), 5);
  EXPECT_EQ(Parse(R"("logprobs": true)").request.sampling().logprobs(), 0);
  EXPECT_TRUE(Parse(R"("logprobs": true)").request.sampling().has_logprobs());
  EXPECT_EQ(Parse(R"("logprobs": true, "top_logprobs": 4)").request.sampling().logprobs(), 4);
}

TEST(ParseChat, ToolsAreOffWhenTheClientSaysSo) {
  const ApiRequest parsed = Parse(R"("tools": [{"type": "function"}], "tool_choice": "none")");
  EXPECT_FALSE(parsed.use_tools);
  EXPECT_EQ(parsed.request.chat().tools(), "");
}

TEST(ParseChat, RefusalsNameTheField) {
  const std::pair<std::string, std::string> cases[] = {
      {"{}", "messages: is missing"},
      {R"({"messages": null})", "messages: is missing"},
      {R"({"messages": "Hi"})", "messages: must be an array of objects, got a string"},
      {R"({"messages": {}})", "messages: must be an array of objects, got an object"},
      {absl::StrCat("{", kHello, R"(, "max_tokens": 1, "max_completion_tokens": 2})"),
       "max_completion_tokens: max_tokens and max_completion_tokens differ"},
      {absl::StrCat("{", kHello, R"(, "top_logprobs": 1})"), "top_logprobs: needs \"logprobs\": true"},
      {absl::StrCat("{", kHello, R"(, "logprobs": 1})"), "logprobs: must be a boolean, got a number"},
      {absl::StrCat("{", kHello, R"(, "tools": []})"), "tools: must not be empty"},
      {absl::StrCat("{", kHello, R"(, "tool_choice": "required"})"), "tool_choice: \"required\" is not supported yet"},
      {absl::StrCat("{", kHello, R"(, "tool_choice": {"type": "function"}})"), "tool_choice: a named function is not"},
      {absl::StrCat("{", kHello, R"(, "response_format": {"type": "json_object"}})"), "response_format: only "},
      {absl::StrCat("{", kHello, R"(, "response_format": {}})"), "response_format: must be an object with a \"type\""},
      {absl::StrCat("{", kHello, R"(, "functions": []})"), "functions: is what OpenAI has replaced"},
      {absl::StrCat("{", kHello, R"(, "modalities": ["audio"]})"), "modalities: only \"text\" is supported"},
      {absl::StrCat("{", kHello, R"(, "continue_final_message": true, "add_generation_prompt": true})"),
       "continue_final_message: can't be together"},
      {absl::StrCat(R"({"messages": )", std::string(65, '['), std::string(65, ']'), "}"),
       "messages: is nested too deeply"},
  };
  for (const auto& [body, why] : cases) EXPECT_THAT(Refusal(body), StartsWith(why)) << body;
  EXPECT_TRUE(ParseChat(absl::StrCat("{", kHello, R"(, "response_format": {"type": "text"}, "modalities": ["text"],
      "metadata": {"a": "b"}, "store": true, "reasoning_effort": "low"})"))
                  .ok());
}

// ---- answers ----

const AnswerNames kNames = {"id-1", "tiny", 1700000000};

pb::GenerateResponse Delta(const std::string& text, int index = 0) {
  pb::GenerateResponse response;
  response.add_choices()->set_text(text);
  response.mutable_choices(0)->set_index(index);
  return response;
}

pb::GenerateResponse Last(const std::string& text = "", pb::FinishReason reason = pb::FINISH_REASON_STOP, int n = 1) {
  pb::GenerateResponse response;
  for (int i = 0; i < n; ++i) {
    pb::ChoiceDelta& delta = *response.add_choices();
    delta.set_index(i);
    delta.set_text(text);
    delta.set_finish_reason(reason);
  }
  response.mutable_usage()->set_prompt_tokens(3);
  response.mutable_usage()->set_completion_tokens(4);
  return response;
}

std::vector<Json> Events(const std::string& bytes) {
  std::vector<Json> events;
  const std::vector<std::string> parts = absl::StrSplit(bytes, "\n\n", absl::SkipEmpty());
  for (const std::string& event : parts) {
    EXPECT_THAT(event, StartsWith("data: "));
    if (event != "data: [DONE]") events.push_back(Json::parse(event.substr(6)));
  }
  return events;
}

TEST(ChatAnswer, Whole) {
  ChatAnswer answer({}, kNames, ToolCallStyle::kNone);
  EXPECT_EQ(answer.Add(Delta("Hel")), "");
  const Json body = Json::parse(answer.Add(Last("lo", pb::FINISH_REASON_LENGTH)));
  EXPECT_EQ(body, Json::parse(R"({"id": "id-1", "object": "chat.completion", "created": 1700000000, "model": "tiny",
      "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hello", "refusal": null}, "logprobs": null,
                   "finish_reason": "length"}],
      "usage": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7,
                "prompt_tokens_details": {"cached_tokens": 0}}})"));
}

TEST(ChatAnswer, Streamed) {
  ApiRequest request;
  request.stream = request.include_usage = true;
  request.request.mutable_sampling()->set_n(2);
  ChatAnswer answer(request, kNames, ToolCallStyle::kNone);
  const std::vector<Json> first = Events(answer.Add(Delta("a", 1)));
  ASSERT_EQ(first.size(), 1u);
  EXPECT_EQ(first[0]["object"], "chat.completion.chunk");
  EXPECT_EQ(first[0]["choices"][0], Json::parse(R"({"index": 1, "delta": {"role": "assistant", "content": "a"},
      "logprobs": null, "finish_reason": null})"));
  EXPECT_TRUE(first[0]["usage"].is_null());
  EXPECT_EQ(Events(answer.Add(Delta("b", 1)))[0]["choices"][0]["delta"], Json::parse(R"({"content": "b"})"));
  const std::string rest = answer.Add(Last("", pb::FINISH_REASON_STOP, 2));
  EXPECT_TRUE(rest.ends_with("data: [DONE]\n\n"));
  const std::vector<Json> last = Events(rest);
  ASSERT_EQ(last.size(), 3u);
  EXPECT_EQ(last[0]["choices"][0]["delta"], Json::parse(R"({"role": "assistant", "content": ""})")) << "it had no text";
  EXPECT_EQ(last[1]["choices"][0]["delta"], Json::object());
  EXPECT_EQ(last[1]["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(last[2]["choices"], Json::array());
  EXPECT_EQ(last[2]["usage"]["total_tokens"], 7);
}

TEST(ChatAnswer, Logprobs) {
  ApiRequest request;
  request.logprobs = true;
  ChatAnswer answer(request, kNames, ToolCallStyle::kNone);
  pb::GenerateResponse delta = Delta("é");
  pb::TokenLogprobs& token = *delta.mutable_choices(0)->add_logprobs();
  token.mutable_sampled()->set_token("\xc3\xa9");
  token.mutable_sampled()->set_logprob(-0.5f);
  token.add_top()->set_token("\xc3");
  EXPECT_EQ(answer.Add(delta), "");
  const Json body = Json::parse(answer.Add(Last()));
  EXPECT_EQ(body["choices"][0]["logprobs"]["content"][0], Json::parse(R"({"token": "é", "logprob": -0.5,
      "bytes": [195, 169], "top_logprobs": [{"token": "bytes:\\xc3", "logprob": 0.0, "bytes": [195]}]})"));
}

TEST(ChatAnswer, ToolCalls) {
  const std::string text = "Well. <tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}}</tool_call>";
  ApiRequest request;
  request.use_tools = true;
  ChatAnswer whole(request, kNames, ToolCallStyle::kHermes);
  EXPECT_EQ(whole.Add(Delta(text)), "");
  const Json choice = Json::parse(whole.Add(Last()))["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  EXPECT_EQ(choice["message"]["content"], "Well. ");
  EXPECT_EQ(choice["message"]["tool_calls"][0], Json::parse(R"({"id": "call-id-1-0-0", "type": "function",
      "function": {"name": "f", "arguments": "{\"a\":1}"}})"));

  ChatAnswer silent(request, kNames, ToolCallStyle::kHermes);
  EXPECT_EQ(silent.Add(Delta(text.substr(6))), "");
  EXPECT_TRUE(Json::parse(silent.Add(Last()))["choices"][0]["message"]["content"].is_null());

  request.stream = true;
  ChatAnswer stream(request, kNames, ToolCallStyle::kHermes);
  const std::vector<Json> first = Events(stream.Add(Delta(text.substr(0, 30))));
  ASSERT_EQ(first.size(), 1u);
  EXPECT_EQ(first[0]["choices"][0]["delta"]["content"], "Well. ");
  const Json delta = Events(stream.Add(Delta(text.substr(30))))[0]["choices"][0]["delta"];
  EXPECT_EQ(delta["tool_calls"][0]["index"], 0);
  EXPECT_EQ(delta["tool_calls"][0]["function"]["name"], "f");
  EXPECT_FALSE(delta.contains("content"));
  EXPECT_EQ(Events(stream.Add(Last()))[0]["choices"][0]["finish_reason"], "tool_calls");
}

TEST(ChatAnswer, WhatLooksLikeACallIsTextWithoutTools) {
  const std::string text = "<tool_call>{\"name\": \"f\"}</tool_call>";
  ChatAnswer answer({}, kNames, ToolCallStyle::kHermes);
  EXPECT_EQ(answer.Add(Delta(text)), "");
  const Json choice = Json::parse(answer.Add(Last()))["choices"][0];
  EXPECT_EQ(choice["message"]["content"], text);
  EXPECT_EQ(choice["finish_reason"], "stop");
}

// ---- tokenize, detokenize ----

TEST(TokenizeApi, BodiesBothWays) {
  const auto text = ParseTokenize(R"({"prompt": "a", "add_special_tokens": false, "return_token_strs": true})");
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(text->request.text(), "a");
  EXPECT_FALSE(text->request.add_special_tokens());
  pb::TokenizeResponse response;
  response.add_ids(7);
  response.add_tokens("\xc3");
  response.set_context_length(9);
  EXPECT_EQ(Json::parse(TokenizeBody(*text, response)),
            Json::parse(R"({"count": 1, "max_model_len": 9, "tokens": [7], "token_strs": ["bytes:\\xc3"]})"));
  const auto chat = ParseTokenize(R"({"messages": [{"role": "user"}], "tools": [{}], "add_generation_prompt": false})");
  ASSERT_TRUE(chat.ok()) << chat.status();
  EXPECT_EQ(chat->request.chat().messages(), R"([{"role":"user"}])");
  EXPECT_EQ(ParseTokenize(R"({"prompt": "a", "messages": []})").status().message(),
            "messages: can't be together with prompt");
  EXPECT_EQ(ParseTokenize("{}").status().message(), "prompt: is missing; give prompt or messages");
  EXPECT_EQ(ParseDetokenize(R"({"tokens": [1, 2]})")->ids_size(), 2);
  EXPECT_EQ(ParseDetokenize(R"({"tokens": "x"})").status().message(),
            "tokens: must be an array of token ids, got a string");
  pb::DetokenizeResponse back;
  back.set_text("hi");
  EXPECT_EQ(DetokenizeBody(back), R"({"prompt":"hi"})");
}

// ---- the OpenAPI file ----

TEST(OpenApi, HasExactlyTheFieldsThatAreRead) {
  const Json schemas = Json::parse(embedded::kOpenApi)["components"]["schemas"];
  for (const auto& [schema, names] :
       {std::pair("ChatRequest", ChatFieldNames()), std::pair("CompletionRequest", CompletionFieldNames())}) {
    std::vector<std::string> described;
    for (const auto& [name, field] : schemas[schema]["properties"].items()) described.push_back(name);
    EXPECT_THAT(described, ::testing::UnorderedElementsAreArray(names)) << schema;
  }
}

}  // namespace
}  // namespace sluice::router
