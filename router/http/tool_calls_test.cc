// Tool calls in text that comes in pieces of every size.
#include "router/http/tool_calls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace sluice::router {
namespace {

using engine::ToolCallStyle;

// "text|name(arguments)|...", over pieces of `size` bytes.
std::string Parsed(ToolCallStyle style, const std::string& text, size_t size) {
  ToolCallParser parser(style);
  std::string content, calls;
  const auto take = [&](const ToolCallParser::Found& found) {
    content += found.text;
    for (const ToolCall& call : found.calls) absl::StrAppend(&calls, "|", call.name, "(", call.arguments, ")");
  };
  for (size_t at = 0; at < text.size(); at += size) take(parser.Add(text.substr(at, size)));
  take(parser.Finish());
  return content + calls;
}

struct Case {
  ToolCallStyle style;
  std::string text;
  std::string parsed;
};

TEST(ToolCalls, AreFoundHoweverTheTextIsCut) {
  const Case cases[] = {
      {ToolCallStyle::kNone, R"(<tool_call>{"name": "f"}</tool_call>)", R"(<tool_call>{"name": "f"}</tool_call>)"},
      {ToolCallStyle::kHermes, "Hello <tool", "Hello <tool"},
      {ToolCallStyle::kHermes, "a < b <tool_cal> c", "a < b <tool_cal> c"},
      {ToolCallStyle::kHermes, R"(<tool_call>
{"name": "f", "arguments": {"a": 1, "b": [true, null]}}
</tool_call>)",
       R"(|f({"a":1,"b":[true,null]}))"},
      {ToolCallStyle::kHermes, R"(Let me see. <tool_call>{"name": "f", "arguments": {}}</tool_call>
<tool_call>{"name": "g", "arguments": "{\"x\": 2}"}</tool_call>)",
       R"(Let me see. |f({})|g({"x": 2}))"},
      {ToolCallStyle::kHermes, "<tool_call>no json</tool_call> and on", "<tool_call>no json</tool_call> and on"},
      {ToolCallStyle::kHermes, R"(<tool_call>{"name": "f")", R"(<tool_call>{"name": "f")"},
      {ToolCallStyle::kHermes, R"(<tool_call>{"arguments": {}}</tool_call>)",
       R"(<tool_call>{"arguments": {}}</tool_call>)"},
      {ToolCallStyle::kHermes, R"(<tool_call>{"name": "f"}</tool_call>)", "|f({})"},
      {ToolCallStyle::kLlama3, R"({"name": "f", "parameters": {"a": "x;y"}})", R"(|f({"a":"x;y"}))"},
      {ToolCallStyle::kLlama3,
       R"(<|python_tag|>{"name": "f", "parameters": {}}; {"name": "g", "parameters": {"b": 2}})",
       R"(|f({})|g({"b":2}))"},
      {ToolCallStyle::kLlama3, R"({"answer": 5})", R"({"answer": 5})"},
      {ToolCallStyle::kLlama3, "{ is a brace", "{ is a brace"},
      {ToolCallStyle::kLlama3, R"(No call {"name": "f"})", R"(No call {"name": "f"})"},
      {ToolCallStyle::kLlama3, R"({"name": "f", "parameters": {}} and more)",
       R"({"name": "f", "parameters": {}} and more)"},
      {ToolCallStyle::kMistral, R"([TOOL_CALLS][{"name": "f", "arguments": {"a": 1}}, {"name": "g", "arguments": {}}])",
       R"(|f({"a":1})|g({}))"},
      {ToolCallStyle::kMistral, R"( [{"name": "f", "arguments": {"a": 1}}])", R"(|f({"a":1}))"},
      {ToolCallStyle::kMistral, "[1, 2, 3] is a list", "[1, 2, 3] is a list"},
      {ToolCallStyle::kMistral, R"([{"name": 5}])", R"([{"name": 5}])"},
      {ToolCallStyle::kMistral, "[TOOL_CALLS] broken", "[TOOL_CALLS] broken"},
  };
  for (const Case& c : cases) {
    for (size_t size : {size_t{1}, size_t{2}, size_t{3}, size_t{7}, c.text.size()}) {
      EXPECT_EQ(Parsed(c.style, c.text, size), c.parsed) << size << " bytes at once";
    }
  }
}

TEST(ToolCalls, TextIsNotHeldBackLongerThanItMust) {
  ToolCallParser parser(ToolCallStyle::kHermes);
  EXPECT_EQ(parser.Add("a<b").text, "a<b");
  EXPECT_EQ(parser.Add(" <tool").text, " ");
  EXPECT_EQ(parser.Add("ing>").text, "<tooling>");
  ToolCallParser llama(ToolCallStyle::kLlama3);
  EXPECT_EQ(llama.Add("Hi").text, "Hi");
  EXPECT_EQ(llama.Add("{").text, "{") << "what begins as text stays text";
}

}  // namespace
}  // namespace sluice::router
