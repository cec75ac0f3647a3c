#include "engine/text/chat_messages.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "engine/files/concat.h"
#include "engine/text/jinja/arguments.h"
#include "engine/text/jinja/from_json.h"
#include "engine/text/jinja/operators.h"
#include "engine/text/jinja/to_json.h"
#include "engine/text/jinja/unicode.h"

namespace sluice::engine {
namespace {

using jinja::DictBuilder;
using jinja::DictData;
using jinja::Environment;
using jinja::Kind;
using jinja::Origin;
using jinja::Text;
using jinja::Value;

template <typename Message>
absl::Status Invalid(std::string_view field, const Message& what) {
  return absl::InvalidArgumentError(Concat(field, ": ", what));
}

bool IsArray(const Value& value) {
  return value.Is(Kind::kList);
}
bool IsSome(const Value* value) {
  return value != nullptr && !value->Is(Kind::kNone);
}

// Words that a template may put into the name of a token; none can end one by itself.
bool IsKnownRole(std::string_view role) {
  for (const std::string_view known :
       {"system", "user", "assistant", "tool", "developer", "function", "ipython", "model"}) {
    if (role == known) return true;
  }
  return false;
}

Value WithEntry(Environment& env, const Value& dict, std::string_view name, Value value) {
  DictBuilder copy;
  for (const auto& [key, old] : dict.dict().entries) copy.Set(key, old);
  copy.Set(env.heap().NewText(std::string(name), Origin::kConversation), std::move(value));
  return env.heap().NewDict(std::move(copy));
}

absl::Status CheckPart(const Value& part, const std::string& field) {
  if (!part.Is(Kind::kDict)) return Invalid(field, "must be an object");
  const Value* const type = part.dict().Find("type");
  if (type == nullptr || !type->Is(Kind::kText)) return Invalid(Concat(field, ".type"), "must be a string");
  if (type->bytes() != "text") {
    return Invalid(Concat(field, ".type"),
                   Concat("\"", type->bytes(), "\" is not supported; this model takes parts of type \"text\" only"));
  }
  const Value* const text = part.dict().Find("text");
  if (text == nullptr || !text->Is(Kind::kText)) return Invalid(Concat(field, ".text"), "must be a string");
  return absl::OkStatus();
}

Value Joined(Environment& env, const std::vector<Value>& parts) {
  Text text;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) text.Append("\n", Origin::kConversation);
    text.Append(parts[i].dict().Find("text")->text());
  }
  return env.heap().NewText(std::move(text));
}

Value OnePart(Environment& env, const Value& text) {
  DictBuilder part;
  part.Set(env.heap().NewText("type", Origin::kConversation), env.heap().NewText("text", Origin::kConversation));
  part.Set(env.heap().NewText("text", Origin::kConversation), text);
  return env.heap().NewList({env.heap().NewDict(std::move(part))});
}

absl::StatusOr<Value> WithContent(Environment& env, const Value& message, const std::string& field,
                                  const TemplateTraits& traits) {
  const Value* const content = message.dict().Find("content");
  if (!IsSome(content)) {
    bool says_otherwise = false;
    for (const std::string_view other : {"tool_calls", "function_call", "reasoning_content", "reasoning", "thinking"}) {
      const Value* const found = message.dict().Find(other);
      says_otherwise = says_otherwise || (IsSome(found) && jinja::IsTrue(*found));
    }
    if (!says_otherwise) {
      return Invalid(Concat(field, ".content"), content == nullptr
                                                    ? "is missing; it must be a string or an array of text parts"
                                                    : "must be a string or an array of text parts");
    }
    if (traits.knows_tool_calls) return message;
    return WithEntry(env, message, "content", env.heap().NewText("", Origin::kConversation));
  }
  if (content->Is(Kind::kText)) {
    if (!traits.loops_over_content || traits.asks_for_strings) return message;
    return WithEntry(env, message, "content", OnePart(env, *content));
  }
  if (!IsArray(*content)) return Invalid(Concat(field, ".content"), "must be a string or an array of text parts");
  const auto& parts = content->list().items;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (absl::Status s = CheckPart(parts[i], Concat(field, ".content[", i, "]")); !s.ok()) return s;
  }
  if (traits.loops_over_content) return message;
  return WithEntry(env, message, "content", Joined(env, parts));
}

// The arguments of a call as the template wants them.
absl::StatusOr<Value> Arguments(Environment& env, const Value& arguments, const std::string& field,
                                const TemplateTraits& traits) {
  if (arguments.Is(Kind::kText)) {
    const bool is_empty = jinja::LeadingSpace(arguments.bytes()) == arguments.text().size();
    absl::StatusOr<Value> parsed =
        is_empty ? env.heap().NewDict(DictBuilder()) : jinja::FromJson(env, arguments.bytes());
    if (!parsed.ok()) return Invalid(field, parsed.status().message());
    if (!parsed->Is(Kind::kDict)) return Invalid(field, "must be a JSON object");
    if (traits.arguments_as_text) return arguments;
    return *parsed;
  }
  if (!arguments.Is(Kind::kDict)) return Invalid(field, "must be a JSON object, or one in a string");
  if (!traits.arguments_as_text) return arguments;
  return env.heap().NewText(jinja::ToJson(env, arguments, jinja::JsonStyleFrom(env, {})));
}

absl::StatusOr<Value> ToolCall(Environment& env, const Value& call, const std::string& field,
                               const TemplateTraits& traits) {
  if (!call.Is(Kind::kDict)) return Invalid(field, "must be an object");
  const Value* const function = call.dict().Find("function");
  if (function == nullptr) {  // the call itself, as some models' templates have it
    const Value* const arguments = call.dict().Find("arguments");
    if (arguments == nullptr) return Invalid(Concat(field, ".function"), "is missing");
    absl::StatusOr<Value> read = Arguments(env, *arguments, Concat(field, ".arguments"), traits);
    if (!read.ok()) return read.status();
    return WithEntry(env, call, "arguments", *std::move(read));
  }
  if (!function->Is(Kind::kDict)) return Invalid(Concat(field, ".function"), "must be an object");
  const Value* const name = function->dict().Find("name");
  if (name == nullptr || !name->Is(Kind::kText)) return Invalid(Concat(field, ".function.name"), "must be a string");
  const Value* const arguments = function->dict().Find("arguments");
  if (arguments == nullptr) return call;
  absl::StatusOr<Value> read = Arguments(env, *arguments, Concat(field, ".function.arguments"), traits);
  if (!read.ok()) return read.status();
  return WithEntry(env, call, "function", WithEntry(env, *function, "arguments", *std::move(read)));
}

absl::StatusOr<Value> WithToolCalls(Environment& env, const Value& message, const std::string& field,
                                    const TemplateTraits& traits) {
  const Value* const calls = message.dict().Find("tool_calls");
  if (!IsSome(calls)) return message;
  if (!IsArray(*calls)) return Invalid(Concat(field, ".tool_calls"), "must be an array");
  std::vector<Value> read;
  for (size_t i = 0; i < calls->list().items.size(); ++i) {
    absl::StatusOr<Value> call = ToolCall(env, calls->list().items[i], Concat(field, ".tool_calls[", i, "]"), traits);
    if (!call.ok()) return call.status();
    read.push_back(*std::move(call));
  }
  return WithEntry(env, message, "tool_calls", env.heap().NewList(std::move(read)));
}

absl::StatusOr<Value> ReadMessage(Environment& env, const Value& message, const std::string& field,
                                  const TemplateTraits& traits) {
  if (!message.Is(Kind::kDict)) return Invalid(field, "must be an object");
  const Value* const role = message.dict().Find("role");
  if (role == nullptr || !role->Is(Kind::kText) || role->text().empty()) {
    return Invalid(Concat(field, ".role"), "must be a string that is not empty");
  }
  absl::StatusOr<Value> read = WithContent(env, message, field, traits);
  if (read.ok()) read = WithToolCalls(env, *read, field, traits);
  if (!read.ok() || !IsKnownRole(role->bytes())) return read;
  return WithEntry(env, *read, "role", env.heap().NewText(role->bytes(), Origin::kTemplate));
}

}  // namespace

absl::StatusOr<Value> ReadMessages(Environment& env, std::string_view json, const TemplateTraits& traits) {
  absl::StatusOr<Value> parsed = jinja::FromJson(env, json);
  if (!parsed.ok()) return Invalid("messages", parsed.status().message());
  if (!IsArray(*parsed)) return Invalid("messages", "must be an array of messages");
  if (parsed->list().items.empty()) return Invalid("messages", "must not be empty");
  std::vector<Value> messages;
  for (size_t i = 0; i < parsed->list().items.size(); ++i) {
    absl::StatusOr<Value> message = ReadMessage(env, parsed->list().items[i], Concat("messages[", i, "]"), traits);
    if (!message.ok()) return message.status();
    messages.push_back(*std::move(message));
  }
  return env.heap().NewList(std::move(messages));
}

absl::StatusOr<Value> ReadTools(Environment& env, std::string_view json) {
  if (json.empty()) return Value(jinja::None{});
  absl::StatusOr<Value> tools = jinja::FromJson(env, json);
  if (!tools.ok()) return Invalid("tools", tools.status().message());
  if (tools->Is(Kind::kNone)) return tools;
  if (!IsArray(*tools)) return Invalid("tools", "must be an array of functions");
  const auto& items = tools->list().items;
  for (size_t i = 0; i < items.size(); ++i) {
    if (!items[i].Is(Kind::kDict)) return Invalid(Concat("tools[", i, "]"), "must be an object");
  }
  return items.empty() ? Value(jinja::None{}) : *std::move(tools);
}

absl::StatusOr<std::string> FinalText(const Value& messages) {
  const size_t last = messages.list().items.size() - 1;
  const std::string field = Concat("messages[", last, "].content");
  const Value* const content = messages.list().items[last].dict().Find("content");
  std::string text;
  if (content != nullptr && content->Is(Kind::kText)) text = content->bytes();
  if (content != nullptr && IsArray(*content) && !content->list().items.empty()) {
    text = content->list().items.back().dict().Find("text")->bytes();
  }
  if (jinja::LeadingSpace(text) == text.size()) return Invalid(field, "must not be empty where it is to be continued");
  return text;
}

}  // namespace sluice::engine
