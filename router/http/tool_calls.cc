#include "router/http/tool_calls.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

namespace sluice::router {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kSpace = " \t\r\n";
constexpr std::string_view kOpen = "<tool_call>";
constexpr std::string_view kClose = "</tool_call>";
constexpr std::string_view kPythonTag = "<|python_tag|>";
constexpr std::string_view kMistralMark = "[TOOL_CALLS]";

std::string_view Stripped(std::string_view text) {
  const size_t begin = std::min(text.size(), text.find_first_not_of(kSpace));
  return text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
}

// Without `mark` at its beginning, where that is.
std::string_view After(std::string_view mark, std::string_view text) {
  return text.starts_with(mark) ? text.substr(mark.size()) : text;
}

// How many bytes at the end of `text` could be the beginning of `mark`.
size_t HalfMark(std::string_view text, std::string_view mark) {
  for (size_t n = std::min(text.size(), mark.size() - 1); n > 0; --n) {
    if (mark.starts_with(text.substr(text.size() - n))) return n;
  }
  return 0;
}

// Whether `text`, white space before it aside, may still become something that begins with one of the marks.
template <size_t kCount>
bool MayBegin(std::string_view text, const std::array<std::string_view, kCount>& marks) {
  text.remove_prefix(std::min(text.size(), text.find_first_not_of(kSpace)));
  return std::any_of(marks.begin(), marks.end(), [text](std::string_view mark) {
    return text.size() < mark.size() ? mark.starts_with(text) : text.starts_with(mark);
  });
}

// A call as an object with a name, and arguments under either of the names in use.
std::optional<ToolCall> CallOf(const Json& value) {
  if (!value.is_object() || !value.contains("name") || !value["name"].is_string()) return std::nullopt;
  const char* key = value.contains("arguments") ? "arguments" : "parameters";
  ToolCall call{value["name"].get<std::string>(), "{}"};
  if (value.contains(key)) {
    const Json& arguments = value[key];
    call.arguments = arguments.is_string() ? arguments.get<std::string>()
                                           : arguments.dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  return call;
}

std::optional<ToolCall> ParseCall(std::string_view text) {
  return CallOf(Json::parse(text.begin(), text.end(), nullptr, false));
}

// Objects with `;` between; nothing if any of them is no call.
std::vector<ToolCall> LlamaCalls(std::string_view text) {
  std::vector<ToolCall> calls;
  text = Stripped(After(kPythonTag, Stripped(text)));
  // A `;` may be inside a string: the end of an object is where it parses.
  size_t end = 0;
  while (!text.empty()) {
    end = text.find(';', end);
    const std::string_view one = text.substr(0, end);
    if (std::optional<ToolCall> call = ParseCall(one)) {
      calls.push_back(*std::move(call));
      text = Stripped(text.substr(std::min(text.size(), one.size() + 1)));
      end = 0;
    } else if (end == std::string_view::npos) {
      return {};
    } else {
      ++end;
    }
  }
  return calls;
}

std::vector<ToolCall> MistralCalls(std::string_view text) {
  text = After(kMistralMark, Stripped(text));
  const Json array = Json::parse(text.begin(), text.end(), nullptr, false);
  std::vector<ToolCall> calls;
  if (!array.is_array()) return calls;
  for (const Json& value : array) {
    std::optional<ToolCall> call = CallOf(value);
    if (!call.has_value()) return {};
    calls.push_back(*std::move(call));
  }
  return calls;
}

}  // namespace

ToolCallParser::ToolCallParser(engine::ToolCallStyle style)
    : style_(style), plain_(style == engine::ToolCallStyle::kNone) {}

ToolCallParser::Found ToolCallParser::TakeHermes(bool end) {
  Found found;
  while (true) {
    if (after_call_) {  // what stands between calls is layout
      held_.erase(0, held_.find_first_not_of(kSpace));
      after_call_ = held_.empty();
    }
    const size_t open = held_.find(kOpen);
    const size_t keep = open == std::string::npos ? (end ? 0 : HalfMark(held_, kOpen)) : held_.size() - open;
    found.text.append(held_, 0, held_.size() - keep);
    held_.erase(0, held_.size() - keep);
    if (open == std::string::npos) return found;
    const size_t close = held_.find(kClose);
    if (close == std::string::npos) {
      if (end) found.text += std::exchange(held_, "");
      return found;
    }
    const size_t after = close + kClose.size();
    if (auto call = ParseCall(std::string_view(held_).substr(kOpen.size(), close - kOpen.size()))) {
      found.calls.push_back(*std::move(call));
      after_call_ = true;
    } else {
      found.text.append(held_, 0, after);
    }
    held_.erase(0, after);
  }
}

// The answer is calls as a whole, or text.
ToolCallParser::Found ToolCallParser::TakeWhole() {
  Found found;
  found.calls = style_ == engine::ToolCallStyle::kLlama3 ? LlamaCalls(held_) : MistralCalls(held_);
  if (found.calls.empty()) found.text = held_;
  held_.clear();
  return found;
}

ToolCallParser::Found ToolCallParser::Add(std::string_view text) {
  if (plain_) return {std::string(text), {}};
  held_ += text;
  if (style_ == engine::ToolCallStyle::kHermes) return TakeHermes(false);
  static constexpr std::array<std::string_view, 2> kLlamaMarks = {"{", kPythonTag};
  static constexpr std::array<std::string_view, 2> kMistralMarks = {kMistralMark, "[{\"name\""};
  const bool may =
      style_ == engine::ToolCallStyle::kLlama3 ? MayBegin(held_, kLlamaMarks) : MayBegin(held_, kMistralMarks);
  if (may) return {};
  plain_ = true;
  return {std::exchange(held_, ""), {}};
}

ToolCallParser::Found ToolCallParser::Finish() {
  if (plain_) return {std::exchange(held_, ""), {}};
  return style_ == engine::ToolCallStyle::kHermes ? TakeHermes(true) : TakeWhole();
}

}  // namespace sluice::router
