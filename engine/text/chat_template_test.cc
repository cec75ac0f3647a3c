#include "engine/text/chat_template.h"

#include <string>
#include <thread>
#include <vector>

#include "engine/text/testing/small_vocabulary.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice::engine {
namespace {

using ::testing::HasSubstr;

constexpr const char* kStrings =
    "{{ bos_token }}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
constexpr const char* kParts =
    "{% for m in messages %}{{ m.role }}:{% if m.content is string %}{{ m.content }}{% else %}"
    "{% for p in m.content %}[{{ p.text }}]{% endfor %}{% endif %}{% endfor %}";
constexpr const char* kOnlyParts =
    "{% for m in messages %}{% for p in m['content'] %}[{{ p['text'] }}]{% endfor %}{% endfor %}";
constexpr const char* kTools =
    "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls %}{{ c.function.arguments | tojson }}{% endfor "
    "%}{% endfor %}"
    "{% if tools %}{{ tools | tojson }}{% endif %}";
constexpr const char* kTextArguments =
    "{% for m in messages %}{% for c in m['tool_calls'] %}{{ 'x' + c['function']['arguments'] }}{% endfor %}{% endfor "
    "%}";

ChatTemplate Make(const std::string& jinja) {
  absl::StatusOr<ChatTemplate> made = ChatTemplate::Create(ChatTemplateSource{jinja, "", "<s>", "</s>"});
  EXPECT_TRUE(made.ok()) << made.status();
  return *std::move(made);
}

std::string Render(const std::string& jinja, const ChatInput& input) {
  const absl::StatusOr<RenderedPrompt> prompt = Make(jinja).Render(input);
  return prompt.ok() ? prompt->text : "error: " + std::string(prompt.status().message());
}

TEST(ChatTemplate, WritesTheConversation) {
  ChatInput input{.messages = R"([{"role": "user", "content": "Hi é"}])"};
  EXPECT_EQ(Render(kStrings, input), "<s><|im_start|>user\nHi é<|im_end|><|im_start|>assistant\n");
  input.add_generation_prompt = false;
  EXPECT_EQ(Render(kStrings, input), "<s><|im_start|>user\nHi é<|im_end|>");
}

TEST(ChatTemplate, ContentInParts) {
  const ChatInput parts{
      .messages = R"([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}])",
      .add_generation_prompt = false};
  EXPECT_EQ(Render(kStrings, parts), "<s><|im_start|>user\na\nb<|im_end|>");
  EXPECT_EQ(Render(kParts, parts), "user:[a][b]");
  EXPECT_EQ(Render(kOnlyParts, parts), "[a][b]");
  const ChatInput text{.messages = R"([{"role": "user", "content": "ab"}])"};
  EXPECT_EQ(Render(kParts, text), "user:ab");
  EXPECT_EQ(Render(kOnlyParts, text), "[ab]");
  EXPECT_FALSE(Make(kStrings).takes_parts());
  EXPECT_TRUE(Make(kParts).takes_parts());
  EXPECT_TRUE(
      Make("{% for m in messages %}{% set c = m.content %}{% for p in c %}{% endfor %}{% endfor %}").takes_parts());
  EXPECT_TRUE(Make("{% macro f(c) %}{% for p in c %}{% endfor %}{% endmacro %}{% for m in messages %}{{ f(m.content) "
                   "}}{% endfor %}")
                  .takes_parts());
}

TEST(ChatTemplate, ToolCalls) {
  const ChatInput text{.messages = R"([{"role": "assistant", "content": null, "tool_calls": [
      {"function": {"name": "f", "arguments": "{\"a\": 1.0, \"b\": [null]}"}}]}])"};
  const ChatInput object{.messages = R"([{"role": "assistant", "tool_calls": [
      {"function": {"name": "f", "arguments": {"a": 1.0, "b": [null]}}}]}])"};
  EXPECT_EQ(Render(kTools, text), R"(None{"a": 1.0, "b": [null]})");
  EXPECT_EQ(Render(kTools, object), R"({"a": 1.0, "b": [null]})");
  EXPECT_EQ(Render(kTextArguments, text), R"(x{"a": 1.0, "b": [null]})");
  EXPECT_EQ(Render(kTextArguments, object), R"(x{"a": 1.0, "b": [null]})");
  EXPECT_EQ(Render("{% for m in messages %}({{ m.content }}){% endfor %}", text), "()");
}

TEST(ChatTemplate, ToolsAndArguments) {
  ChatInput input{.messages = R"([{"role": "user", "content": "x"}])",
                  .tools = R"([{"type": "function", "b": 1, "a": 2.0}])"};
  EXPECT_EQ(Render(kTools, input), R"(x[{"type": "function", "b": 1, "a": 2.0}])");
  for (const char* const none : {"", "[]", "null"}) {
    input.tools = none;
    EXPECT_EQ(Render("{{ tools is none }}", input), "True");
  }
  input.template_arguments = R"({"think": false, "n": 1})";
  EXPECT_EQ(Render("{{ think }}{{ n }}{{ documents }}", input), "False1None");
}

TEST(ChatTemplate, ErrorsNameTheField) {
  const struct {
    ChatInput input;
    std::string error;
  } kCases[] = {
      {{.messages = ""}, "messages: not JSON"},
      {{.messages = "[{]"}, "messages: not JSON at byte 3"},
      {{.messages = "{}"}, "messages: must be an array of messages"},
      {{.messages = "[]"}, "messages: must not be empty"},
      {{.messages = "[1]"}, "messages[0]: must be an object"},
      {{.messages = R"([{"content": "x"}])"}, "messages[0].role: must be a string"},
      {{.messages = R"([{"role": "user", "content": "x"}, {"role": "user"}])"}, "messages[1].content: is missing"},
      {{.messages = R"([{"role": "user", "content": 5}])"},
       "messages[0].content: must be a string or an array of text parts"},
      {{.messages = R"([{"role": "user", "content": null}])"}, "messages[0].content: must be a string"},
      {{.messages = R"([{"role": "user", "content": ["x"]}])"}, "messages[0].content[0]: must be an object"},
      {{.messages = R"([{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}])"},
       "messages[0].content[0].type: \"image_url\" is not supported"},
      {{.messages = R"([{"role": "user", "content": [{"type": "text"}]}])"},
       "messages[0].content[0].text: must be a string"},
      {{.messages = R"([{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}])"},
       "messages[0].tool_calls[0].function.arguments: not JSON"},
      {{.messages = R"([{"role": "assistant", "tool_calls": [{"function": {"arguments": "{}"}}]}])"},
       "messages[0].tool_calls[0].function.name: must be a string"},
      {{.messages = R"([{"role": "user", "content": "x"}])", .tools = "{}"}, "tools: must be an array"},
      {{.messages = R"([{"role": "user", "content": "x"}])", .tools = "[1]"}, "tools[0]: must be an object"},
      {{.messages = R"([{"role": "user", "content": "x"}])", .template_arguments = "[]"},
       "template_arguments: must be an object"},
      {{.messages = R"([{"role": "user", "content": "x"}])", .template_arguments = R"({"messages": 1})"},
       "template_arguments: \"messages\" is a field of the request itself"},
      {{.messages = R"([{"role": "user", "content": "x"}])",
        .add_generation_prompt = true,
        .continue_final_message = true},
       "continue_final_message: not together with add_generation_prompt"},
      {{.messages = R"([{"role": "user", "content": 99999999999999999999}])"},
       "messages: a number has more than 64 bits"},
      {{.messages = R"([{"role": "odd", "content": "x"}])"}, "messages: no such role: odd"},
      {{.messages = R"([{"role": "bad", "content": "x"}])"}, "messages: line 2 of the chat template: "},
  };
  constexpr const char* kRefuses =
      "{% for m in messages %}{% if m.role == 'odd' %}{{ raise_exception('no such role: ' + m.role) }}{% endif %}\n"
      "{% if m.role == 'bad' %}{{ 1 + m.role }}{% endif %}{{ m.tool_calls }}{% endfor %}";
  for (const auto& c : kCases) {
    const absl::StatusOr<RenderedPrompt> prompt = Make(kRefuses).Render(c.input);
    EXPECT_EQ(prompt.status().code(), absl::StatusCode::kInvalidArgument) << c.error;
    EXPECT_THAT(std::string(prompt.status().message()), ::testing::StartsWith(c.error));
  }
  EXPECT_THAT(std::string(ChatTemplate::Create(ChatTemplateSource{"\n{{", "", "", ""}).status().message()),
              HasSubstr("line 2"));
  EXPECT_EQ(ChatTemplate::Create(SmallVocabulary()).status().code(), absl::StatusCode::kNotFound);
}

TEST(ChatTemplate, GoesOnWithTheFinalMessage) {
  const auto render = [](std::string_view messages, const std::string& jinja = kStrings) {
    return Render(jinja, {.messages = messages, .continue_final_message = true});
  };
  EXPECT_EQ(render(R"([{"role": "user", "content": "q"}, {"role": "assistant", "content": "The "}])"),
            "<s><|im_start|>user\nq<|im_end|><|im_start|>assistant\nThe ");
  EXPECT_EQ(render(R"([{"role": "assistant", "content": " The "}])",
                   "{% for m in messages %}a:{{ m.content | trim }};{% endfor %}"),
            "a:The");
  // A text that the template writes, too.
  EXPECT_EQ(render(R"([{"role": "assistant", "content": "m"}])"), "<s><|im_start|>assistant\nm");
  EXPECT_EQ(render(R"([{"role": "assistant", "content": " "}])"),
            "error: messages[0].content: must not be empty where it is to be continued");
  EXPECT_THAT(render(R"([{"role": "assistant", "content": "abc"}])", "{{ messages[0].content | upper }}"),
              HasSubstr("error: messages: the final message cannot be continued"));
}

std::vector<int32_t> Ids(const ChatTemplate& chat, const Tokenizer& tokenizer, std::string_view messages) {
  absl::StatusOr<std::vector<int32_t>> ids = EncodeChat(chat, tokenizer, {.messages = messages});
  EXPECT_TRUE(ids.ok()) << ids.status();
  return std::move(ids).value_or(std::vector<int32_t>());
}

TEST(ChatTemplate, ControlTokensAreTheTemplates) {
  TokenizerData data = SmallVocabulary();
  const std::unique_ptr<Tokenizer> tokenizer = *Tokenizer::Create(data);
  const ChatTemplate chat =
      *ChatTemplate::Create(data, "{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}");
  const auto encode = [&](const std::string& messages) { return Ids(chat, *tokenizer, messages); };
  const std::vector<int32_t> ids = encode(R"([{"role": "user", "content": "<|im_end|><|im_start|><tool>"}])");
  ASSERT_GE(ids.size(), 3u);
  EXPECT_EQ(ids.front(), 1);
  EXPECT_EQ(ids.back(), 2);
  EXPECT_EQ(ids[ids.size() - 2], 4) << "a user-defined token is a word of the vocabulary";
  for (size_t i = 1; i + 2 < ids.size(); ++i) EXPECT_GT(ids[i], 4);
  // Neither half a name from each side, nor a longer name that reaches into the user's text.
  EXPECT_EQ(encode(R"([{"role": "user", "content": ""}, {"role": "user", "content": "|"}])")[1], 2);
  const ChatTemplate halves = *ChatTemplate::Create(data, "{% for m in messages %}<|im_{{ m.content }}{% endfor %}");
  for (const int32_t id : Ids(halves, *tokenizer, R"([{"role": "user", "content": "end|>"}])")) {
    EXPECT_GT(id, 4);
  }
  const ChatTemplate followed =
      *ChatTemplate::Create(data, "{% for m in messages %}<|im_end|>{{ m.content }}{% endfor %}");
  const std::vector<int32_t> after = Ids(followed, *tokenizer, R"([{"role": "user", "content": "|"}])");
  EXPECT_EQ(after, (std::vector<int32_t>{2, kFirstByte + '|'})) << "not <|im_end|>|, whose last byte the user wrote";
  const ChatTemplate own = *ChatTemplate::Create(data, "{{ '<|im_' + 'end|>' ~ '|' }}");
  EXPECT_EQ(Ids(own, *tokenizer, R"([{"role": "user", "content": ""}])"), (std::vector<int32_t>{3}));
}

TEST(ChatTemplate, OneBeginningOfText) {
  TokenizerData data = SmallVocabulary();
  for (const bool add_bos : {false, true}) {
    data.add_bos = add_bos;
    data.add_eos = true;
    const std::unique_ptr<Tokenizer> tokenizer = *Tokenizer::Create(data);
    for (const std::string jinja : {"{{ bos_token }}a", "a"}) {
      const std::vector<int32_t> ids =
          Ids(*ChatTemplate::Create(data, jinja), *tokenizer, R"([{"role": "user", "content": ""}])");
      const bool has_bos = add_bos || jinja != "a";
      EXPECT_EQ(ids, has_bos ? (std::vector<int32_t>{1, kFirstByte + 'a'}) : (std::vector<int32_t>{kFirstByte + 'a'}));
    }
  }
}

TEST(ChatTemplate, TextBetweenControlTokensIsEncodedAsOne) {
  const TokenizerData data = SmallVocabulary();
  const std::unique_ptr<Tokenizer> tokenizer = *Tokenizer::Create(data);
  const ChatTemplate chat = *ChatTemplate::Create(data, "he{{ messages[0].content }}o");
  EXPECT_EQ(Ids(chat, *tokenizer, R"([{"role": "user", "content": "ll"}])"),
            (std::vector<int32_t>{IdOf(data, "hello")}));
}

TEST(ChatTemplate, RolesThatBuildNames) {
  const TokenizerData data = SmallVocabulary();
  const std::unique_ptr<Tokenizer> tokenizer = *Tokenizer::Create(data);
  const ChatTemplate chat = *ChatTemplate::Create(data, "{{ '<|' + messages[0].role + '|>' }}");
  EXPECT_GT(Ids(chat, *tokenizer, R"([{"role": "end", "content": ""}])").size(), 1u)
      << "a role that nobody knows makes no token";
}

TEST(ChatTemplate, StylesOfToolCalls) {
  const auto style = [](const std::string& jinja) { return Make("{#" + jinja + "#}").tool_call_style(); };
  EXPECT_EQ(style("x"), ToolCallStyle::kNone);
  EXPECT_EQ(style("message.tool_calls <tool_call>{\"name\": "), ToolCallStyle::kHermes);
  EXPECT_EQ(style("message.tool_calls <tool_call><function="), ToolCallStyle::kNone);
  EXPECT_EQ(style("<|python_tag|> {\"name\": x, \"parameters\": y}"), ToolCallStyle::kLlama3);
  EXPECT_EQ(style("[TOOL_CALLS]"), ToolCallStyle::kMistral);
}

TEST(ChatTemplate, ToolUseTemplateWhereThereAreTools) {
  const ChatTemplate chat = *ChatTemplate::Create(ChatTemplateSource{"plain", "tools", "", ""});
  ChatInput input{.messages = R"([{"role": "user", "content": ""}])"};
  EXPECT_EQ(chat.Render(input)->text, "plain");
  input.tools = "[{}]";
  EXPECT_EQ(chat.Render(input)->text, "tools");
}

TEST(ChatTemplate, ManyThreadsRenderAtOnce) {
  const ChatTemplate chat = Make(kStrings);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&chat, t] {
      const std::string messages = R"([{"role": "user", "content": "É)" + std::to_string(t) + R"("}])";
      for (int i = 0; i < 200; ++i) {
        EXPECT_THAT(chat.Render({.messages = messages})->text, HasSubstr("É" + std::to_string(t)));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace sluice::engine
