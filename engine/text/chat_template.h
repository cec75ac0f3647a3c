// A conversation becomes a prompt: the chat template of a model, applied to messages and tools.
//
// Promises: the text is byte for byte that of Hugging Face's apply_chat_template. Which of its bytes the template wrote
// is kept, so that names of control tokens count where the template writes them and are text where a message holds
// them. A prompt begins with one beginning-of-text token where template or vocabulary asks for one, never with two.
// Parsed once; thread-safe; ends within limits of time and memory whatever template and conversation are.
//
// Errors are INVALID_ARGUMENT and begin with the field: "messages: ...", "messages[2].content: ...", "tools: ...",
// "template_arguments: ...". What the template says with raise_exception comes as "messages: <its text>".
//
// How a conversation is handed over, which Hugging Face leaves to its caller:
//   - `content` that is an array of {"type": "text", "text": ...}: as it is to a template that loops over the content,
//     to others as one string, the parts joined by "\n". A string goes as one part to a template that loops over the
//     content and never asks whether it is a string. Parts of other types are refused.
//   - `content` that is null or missing is allowed beside tool calls (and reasoning); a template that does not know
//     tool calls sees "".
//   - `arguments` of a tool call that are a string, as in OpenAI's API, are parsed; a template that writes them without
//     `tojson` gets them as a string, either way.
//   - `tools` that are empty are none. Roles that every template knows ("user", "assistant", ...) count as written
//     by the template, for some build the name of a control token of them; all other text of the request doesn't.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "engine/files/tokenizer_data.h"
#include "engine/text/text_span.h"
#include "engine/text/tokenizer.h"

namespace sluice::engine {

// As proto/serving.proto's ChatPrompt.
struct ChatInput {
  std::string_view messages;                  // JSON: an array of objects with `role` and `content`
  std::string_view tools;                     // JSON: an array; empty: none
  std::optional<bool> add_generation_prompt;  // default: unless the final message is continued
  bool continue_final_message = false;        // the prompt ends with the last message's content
  std::string_view template_arguments;        // JSON: an object, further variables; empty: none
  absl::Time now;                             // for strftime_now, in UTC
};

struct RenderedPrompt {
  std::string text;
  std::vector<TextSpan> template_text;  // what the template wrote; ascending, apart
};

// How a model that the template is of calls tools, which tells how to read its answer.
enum class ToolCallStyle : uint8_t {
  kNone,
  kHermes,   // <tool_call>{"name": ..., "arguments": {...}}</tool_call>: Hermes, Qwen 2.5 and 3
  kLlama3,   // {"name": ..., "parameters": {...}} and nothing else: Llama 3.1 to 3.3
  kMistral,  // [TOOL_CALLS][{"name": ..., "arguments": {...}}]
};

// Jinja, and what it calls bos_token and eos_token.
struct ChatTemplateSource {
  std::string jinja;
  std::string tool_use_jinja;  // used when there are tools; empty: `jinja`
  std::string bos_token;       // empty: none
  std::string eos_token;
};

class ChatTemplate {
 public:
  // INVALID_ARGUMENT with the line of what does not parse.
  static absl::StatusOr<ChatTemplate> Create(const ChatTemplateSource& source);
  // The template that came with the vocabulary. NOT_FOUND if none did.
  static absl::StatusOr<ChatTemplate> Create(const TokenizerData& data);
  // The vocabulary's tokens with another template.
  static absl::StatusOr<ChatTemplate> Create(const TokenizerData& data, std::string jinja,
                                             std::string tool_use_jinja = {});
  ~ChatTemplate();
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;

  absl::StatusOr<RenderedPrompt> Render(const ChatInput& input) const;

  ToolCallStyle tool_call_style() const;
  // Content goes to the template in parts.
  bool takes_parts() const;

 private:
  struct Impl;
  explicit ChatTemplate(std::unique_ptr<const Impl> impl);
  std::unique_ptr<const Impl> impl_;
};

// The ids of what was rendered. Its beginning-of-text token is the one of the template or the one that the vocabulary
// adds; none is added at the end.
std::vector<int32_t> EncodePrompt(const Tokenizer& tokenizer, const RenderedPrompt& prompt);

absl::StatusOr<std::vector<int32_t>> EncodeChat(const ChatTemplate& chat_template, const Tokenizer& tokenizer,
                                                const ChatInput& input);

}  // namespace sluice::engine
