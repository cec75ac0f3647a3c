#include "engine/text/chat_template.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "engine/files/concat.h"
#include "engine/text/chat_messages.h"
#include "engine/text/jinja/from_json.h"
#include "engine/text/jinja/template.h"
#include "engine/text/jinja/unicode.h"
#include "engine/text/template_traits.h"

namespace sluice::engine {
namespace {

using jinja::Origin;
using jinja::Text;
using jinja::Value;

// One template with what was seen in it.
struct Parsed {
  jinja::Template jinja;
  TemplateTraits traits;
};

absl::StatusOr<Parsed> Parse(const std::string& source) {
  absl::StatusOr<jinja::Template> parsed = jinja::Template::Parse(source);
  if (!parsed.ok()) return parsed.status();
  const TemplateTraits traits = TraitsOf(parsed->program());
  return Parsed{*std::move(parsed), traits};
}

bool BeginsWithField(std::string_view message) {
  for (const std::string_view field : {"messages", "tools", "template_arguments"}) {
    if (message.starts_with(field) && message.size() > field.size() &&
        (message[field.size()] == ':' || message[field.size()] == '[')) {
      return true;
    }
  }
  return false;
}

absl::Status SetArguments(jinja::Environment& env, std::string_view json, jinja::Template::SetVariable set) {
  if (json.empty()) return absl::OkStatus();
  const absl::StatusOr<Value> arguments = jinja::FromJson(env, json);
  if (!arguments.ok()) return absl::InvalidArgumentError(Concat("template_arguments: ", arguments.status().message()));
  if (arguments->Is(jinja::Kind::kNone)) return absl::OkStatus();
  if (!arguments->Is(jinja::Kind::kDict)) return absl::InvalidArgumentError("template_arguments: must be an object");
  for (const auto& [key, value] : arguments->dict().entries) {
    for (const std::string_view field : {"messages", "tools", "add_generation_prompt", "continue_final_message"}) {
      if (key.bytes() == field) {
        return absl::InvalidArgumentError(
            Concat("template_arguments: \"", field, "\" is a field of the request itself"));
      }
    }
    set(key.bytes(), value);
  }
  return absl::OkStatus();
}

// Cuts what the template wrote after the final message, as Hugging Face does; a place in the template's own text is not
// taken for it.
absl::Status CutAfter(const std::string& final_text, Text& text) {
  const std::string_view message(final_text);
  const size_t leading = jinja::LeadingSpace(message);
  const std::string_view left = message.substr(leading);
  const std::string_view stripped = left.substr(0, left.size() - jinja::TrailingSpace(left));
  const std::string_view bytes = text.bytes();
  const auto is_written_by_template = [&](size_t begin) {
    return std::any_of(text.template_spans().begin(), text.template_spans().end(),
                       [&](const TextSpan& span) { return span.begin < begin + stripped.size() && begin < span.end; });
  };
  size_t at = bytes.rfind(stripped);
  while (at != std::string_view::npos && is_written_by_template(at)) {
    at = at == 0 ? std::string_view::npos : bytes.rfind(stripped, at - 1);
  }
  if (at == std::string_view::npos) {
    return absl::InvalidArgumentError(
        "messages: the final message cannot be continued, for the chat template does not write it as it is");
  }
  // Space after the message stays if the template kept it.
  text.Truncate(at + (bytes.substr(at).starts_with(left) ? left.size() : stripped.size()));
  return absl::OkStatus();
}

}  // namespace

struct ChatTemplate::Impl {
  ChatTemplateSource source;
  Parsed main;
  std::optional<Parsed> tool_use;
  ToolCallStyle tool_call_style;
};

ChatTemplate::ChatTemplate(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
ChatTemplate::~ChatTemplate() = default;
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;

absl::StatusOr<ChatTemplate> ChatTemplate::Create(const ChatTemplateSource& source) {
  absl::StatusOr<Parsed> main = Parse(source.jinja);
  if (!main.ok()) return main.status();
  std::optional<Parsed> tool_use;
  if (!source.tool_use_jinja.empty()) {
    absl::StatusOr<Parsed> parsed = Parse(source.tool_use_jinja);
    if (!parsed.ok()) return parsed.status();
    tool_use = *std::move(parsed);
  }
  const ToolCallStyle style = ToolCallStyleOf(tool_use.has_value() ? source.tool_use_jinja : source.jinja);
  return ChatTemplate(std::make_unique<const Impl>(Impl{source, *std::move(main), std::move(tool_use), style}));
}

absl::StatusOr<ChatTemplate> ChatTemplate::Create(const TokenizerData& data) {
  if (data.chat_template.empty()) return absl::NotFoundError("the model has no chat template");
  return Create(data, data.chat_template);
}

absl::StatusOr<ChatTemplate> ChatTemplate::Create(const TokenizerData& data, std::string jinja,
                                                  std::string tool_use_jinja) {
  const auto name = [&](int32_t id) {
    return id >= 0 && static_cast<size_t>(id) < data.tokens.size() ? data.tokens[static_cast<size_t>(id)] : "";
  };
  return Create(ChatTemplateSource{std::move(jinja), std::move(tool_use_jinja), name(data.bos_id), name(data.eos_id)});
}

absl::StatusOr<RenderedPrompt> ChatTemplate::Render(const ChatInput& input) const {
  if (input.continue_final_message && input.add_generation_prompt.value_or(false)) {
    return absl::InvalidArgumentError("continue_final_message: not together with add_generation_prompt");
  }
  std::string final_text;
  const Parsed* parsed = &impl_->main;
  const bool add_generation_prompt = input.add_generation_prompt.value_or(!input.continue_final_message);
  if (impl_->tool_use.has_value() && !input.tools.empty() && input.tools != "[]" && input.tools != "null") {
    parsed = &*impl_->tool_use;
  }
  const auto fill = [&](jinja::Environment& env, jinja::Template::SetVariable set) {
    set("documents", Value(jinja::None{}));
    if (absl::Status s = SetArguments(env, input.template_arguments, set); !s.ok()) return s;
    absl::StatusOr<Value> messages = ReadMessages(env, input.messages, parsed->traits);
    if (!messages.ok()) return messages.status();
    absl::StatusOr<Value> tools = ReadTools(env, input.tools);
    if (!tools.ok()) return tools.status();
    if (input.continue_final_message) {
      absl::StatusOr<std::string> text = FinalText(*messages);
      if (!text.ok()) return text.status();
      final_text = *std::move(text);
    }
    set("messages", *std::move(messages));
    set("tools", *std::move(tools));
    set("add_generation_prompt", Value(add_generation_prompt));
    const auto set_token = [&](std::string_view name, const std::string& token) {
      if (!token.empty()) set(name, env.heap().NewText(token, Origin::kTemplate));
    };
    set_token("bos_token", impl_->source.bos_token);
    set_token("eos_token", impl_->source.eos_token);
    return absl::OkStatus();
  };
  const std::tm now = absl::ToTM(input.now, absl::UTCTimeZone());
  absl::StatusOr<Text> text = parsed->jinja.Render(jinja::Limits{}, now, fill);
  if (!text.ok()) {
    const std::string_view message(text.status().message().data(), text.status().message().size());
    return BeginsWithField(message) ? text.status() : absl::InvalidArgumentError(Concat("messages: ", message));
  }
  if (input.continue_final_message) {
    if (absl::Status s = CutAfter(final_text, *text); !s.ok()) return s;
  }
  RenderedPrompt prompt;
  prompt.template_text = std::move(*text).TakeSpans();
  prompt.text = std::move(*text).TakeBytes();
  return prompt;
}

ToolCallStyle ChatTemplate::tool_call_style() const {
  return impl_->tool_call_style;
}
bool ChatTemplate::takes_parts() const {
  return impl_->main.traits.loops_over_content;
}

std::vector<int32_t> EncodePrompt(const Tokenizer& tokenizer, const RenderedPrompt& prompt) {
  return tokenizer.EncodePrompt(prompt.text, prompt.template_text);
}

absl::StatusOr<std::vector<int32_t>> EncodeChat(const ChatTemplate& chat_template, const Tokenizer& tokenizer,
                                                const ChatInput& input) {
  const absl::StatusOr<RenderedPrompt> prompt = chat_template.Render(input);
  if (!prompt.ok()) return prompt.status();
  return EncodePrompt(tokenizer, *prompt);
}

}  // namespace sluice::engine
