// Filters whose result is text.
#include <algorithm>
#include <array>
#include <cstdio>

#include "engine/files/concat.h"
#include "engine/text/jinja/error.h"
#include "engine/text/jinja/filters.h"
#include "engine/text/jinja/operators.h"
#include "engine/text/jinja/printf_format.h"
#include "engine/text/jinja/python_text.h"
#include "engine/text/jinja/text_edits.h"
#include "engine/text/jinja/to_json.h"
#include "engine/text/jinja/unicode.h"

namespace sluice::engine::jinja {
namespace {

Value StringFilter(Environment& env, const Value& value, const Arguments& arguments) {
  Bind(arguments, "string", {});
  return value.Is(Kind::kText) ? value : env.heap().NewText(Str(env, value));
}

Value SafeFilter(Environment&, const Value& value, const Arguments& arguments) {
  Bind(arguments, "safe", {});
  return value;
}

Value EscapeFilter(Environment& env, const Value& value, const Arguments& arguments) {
  Bind(arguments, "escape", {});
  return env.heap().NewText(EscapeHtml(Str(env, value)));
}

template <Case kind>
Value CaseFilter(Environment& env, const Value& value, const Arguments& arguments) {
  Bind(arguments, "the filter", {});
  const Text text = Str(env, value);
  env.budget().StepBytes(text.size() * 4);
  return env.heap().NewText(ChangeCase(text, kind));
}

Value TrimFilter(Environment& env, const Value& value, const Arguments& arguments) {
  const auto given = Bind(arguments, "trim", {"chars"});
  std::optional<std::string_view> characters;
  if (given[0] != nullptr && !given[0]->Is(Kind::kNone)) characters = NeedText(*given[0], "chars").bytes();
  return env.heap().NewText(Strip(Str(env, value), Side::kBoth, characters));
}

Value ReplaceFilter(Environment& env, const Value& value, const Arguments& arguments) {
  const auto given = Bind(arguments, "replace", {"old", "new", "count"}, 2);
  const bool counts = given[2] != nullptr && !given[2]->Is(Kind::kNone);
  return env.heap().NewText(Replace(env, Str(env, value), Str(env, *given[0]), Str(env, *given[1]),
                                    counts ? NeedInteger(*given[2], "count") : -1));
}

Value JoinFilter(Environment& env, const Value& value, const Arguments& arguments) {
  const auto given = Bind(arguments, "join", {"d", "attribute"});
  Text separator;
  if (given[0] != nullptr) separator = Str(env, *given[0]);
  const bool by_attribute = given[1] != nullptr && !given[1]->Is(Kind::kNone);
  Text joined;
  const std::vector<Value> items = ItemsOf(env, value);
  for (size_t i = 0; i < items.size(); ++i) {
    env.budget().StepBytes(separator.size());
    if (i > 0) joined.Append(separator);
    AppendStr(env, by_attribute ? GetByPath(env, items[i], *given[1]) : items[i], joined);
  }
  return env.heap().NewText(std::move(joined));
}

Value IndentFilter(Environment& env, const Value& value, const Arguments& arguments) {
  const auto given = Bind(arguments, "indent", {"width", "first", "blank"});
  Text indent(std::string(4, ' '), Origin::kTemplate);
  if (given[0] != nullptr && given[0]->Is(Kind::kText)) {
    indent = given[0]->text();
  } else if (given[0] != nullptr) {
    const int64_t width = std::clamp<int64_t>(NeedInteger(*given[0], "width"), 0, 1000);
    indent = Text(std::string(static_cast<size_t>(width), ' '), Origin::kTemplate);
  }
  const bool first = given[1] != nullptr && IsTrue(*given[1]);
  const bool blank = given[2] != nullptr && IsTrue(*given[2]);
  Text source = NeedText(value, "what indent is given");
  source.Append("\n", Origin::kTemplate);  // so that a newline at the end begins a line
  Text out;
  const std::vector<Text> lines = SplitLines(source, /*keep_ends=*/false);
  for (size_t i = 0; i < lines.size(); ++i) {
    env.budget().StepBytes(indent.size() + lines[i].size());
    if (i > 0) out.Append("\n", Origin::kTemplate);
    if (i == 0 ? first : blank || !lines[i].empty()) out.Append(indent);
    out.Append(lines[i]);
  }
  return env.heap().NewText(std::move(out));
}

Value TruncateFilter(Environment& env, const Value& value, const Arguments& arguments) {
  const auto given = Bind(arguments, "truncate", {"length", "killwords", "end", "leeway"});
  const int64_t length = given[0] != nullptr ? NeedInteger(*given[0], "length") : 255;
  const bool kill_words = given[1] != nullptr && IsTrue(*given[1]);
  const Text end = given[2] != nullptr ? NeedText(*given[2], "end") : Text("...", Origin::kTemplate);
  const int64_t leeway = given[3] != nullptr && !given[3]->Is(Kind::kNone) ? NeedInteger(*given[3], "leeway") : 5;
  const Text& text = NeedText(value, "what truncate is given");
  const auto end_size = static_cast<int64_t>(CountCharacters(end.bytes()));
  if (length < end_size || leeway < 0) Fail("truncate: length is shorter than end, or leeway below 0");
  if (static_cast<int64_t>(CountCharacters(text.bytes())) <= length + leeway) return value;
  Text out = text.Sub(0, ByteOfCharacter(text.bytes(), static_cast<size_t>(length - end_size)));
  if (!kill_words) out = SplitAt(out, " ", 1, /*from_right=*/true)[0];
  out.Append(end);
  return env.heap().NewText(std::move(out));
}

Value CenterFilter(Environment& env, const Value& value, const Arguments& arguments) {
  const auto given = Bind(arguments, "center", {"width"});
  return env.heap().NewText(Center(env, Str(env, value), given[0] != nullptr ? NeedInteger(*given[0], "width") : 80,
                                   Text(" ", Origin::kConversation)));
}

Value FormatFilter(Environment& env, const Value& value, const Arguments& arguments) {
  if (arguments.named.empty()) {
    return PrintfFormat(env, Str(env, value), env.heap().NewList(arguments.positional, ListKind::kTuple));
  }
  DictBuilder named;
  for (const auto& [name, argument] : arguments.named) named.Set(env.heap().NewText(name, Origin::kTemplate), argument);
  return PrintfFormat(env, Str(env, value), env.heap().NewDict(std::move(named)));
}

Value UrlEncodeFilter(Environment& env, const Value& value, const Arguments& arguments) {
  Bind(arguments, "urlencode", {});
  if (value.Is(Kind::kDict) || value.Is(Kind::kList)) Fail("urlencode is supported for strings only");
  const Text text = Str(env, value);
  Text out;
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text.bytes()[at];
    const bool is_plain = (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') ||
                          std::string_view("-_.~/").find(c) != std::string_view::npos;
    if (is_plain) {
      out.Append(text, at, at + 1);
      continue;
    }
    std::array<char, 4> escape{};
    std::snprintf(escape.data(), escape.size(), "%%%02X", static_cast<unsigned>(static_cast<uint8_t>(c)));
    out.Append(escape.data(), text.OriginAt(at));
  }
  return env.heap().NewText(std::move(out));
}

Value ToJsonFilter(Environment& env, const Value& value, const Arguments& arguments) {
  return env.heap().NewText(ToJson(env, value, JsonStyleFrom(env, arguments)));
}

struct Entry {
  std::string_view name;
  Filter filter;
};

constexpr Entry kFilters[] = {
    {"string", StringFilter},
    {"safe", SafeFilter},
    {"escape", EscapeFilter},
    {"e", EscapeFilter},
    {"forceescape", EscapeFilter},
    {"upper", CaseFilter<Case::kUpper>},
    {"lower", CaseFilter<Case::kLower>},
    {"capitalize", CaseFilter<Case::kCapitalize>},
    {"title", CaseFilter<Case::kJinjaTitle>},
    {"trim", TrimFilter},
    {"replace", ReplaceFilter},
    {"join", JoinFilter},
    {"indent", IndentFilter},
    {"truncate", TruncateFilter},
    {"center", CenterFilter},
    {"format", FormatFilter},
    {"urlencode", UrlEncodeFilter},
    {"tojson", ToJsonFilter},
};

}  // namespace

Filter FindTextFilter(std::string_view name) {
  for (const Entry& entry : kFilters) {
    if (entry.name == name) return entry.filter;
  }
  return nullptr;
}

}  // namespace sluice::engine::jinja
