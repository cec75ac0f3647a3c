#include "engine/text/jinja/python_text.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <string_view>

#include "engine/files/concat.h"
#include "engine/text/jinja/error.h"
#include "engine/text/jinja/operators.h"
#include "engine/text/jinja/unicode.h"

namespace sluice::engine::jinja {
namespace {

constexpr Origin kMarks = Origin::kConversation;  // of brackets, commas and quotes

void AppendEscaped(uint32_t c, Text& out, Origin origin) {
  std::array<char, 12> escape{};
  const int digits = c < 0x100 ? 2 : c < 0x10000 ? 4 : 8;
  std::snprintf(escape.data(), escape.size(), "\\%c%0*x", digits == 2 ? 'x' : digits == 4 ? 'u' : 'U', digits, c);
  out.Append(escape.data(), origin);
}

void AppendTextRepr(const Text& text, Text& out) {
  const std::string& bytes = text.bytes();
  const bool double_quotes = bytes.find('\'') != std::string::npos && bytes.find('"') == std::string::npos;
  const char quote = double_quotes ? '"' : '\'';
  out.Append(std::string_view(&quote, 1), kMarks);
  for (size_t at = 0; at < bytes.size();) {
    const Character c = CharacterAt(bytes, at);
    const Origin origin = text.OriginAt(at);
    if (c.value == '\\' || c.value == static_cast<uint8_t>(quote)) {
      out.Append("\\", origin);
      out.Append(text, at, at + 1);
    } else if (c.value == '\n' || c.value == '\r' || c.value == '\t') {
      out.Append(c.value == '\n' ? "\\n" : c.value == '\r' ? "\\r" : "\\t", origin);
    } else if (IsPrintable(c.value)) {
      out.Append(text, at, at + c.length);
    } else {
      AppendEscaped(c.value, out, origin);
    }
    at += c.length;
  }
  out.Append(std::string_view(&quote, 1), kMarks);
}

void AppendItems(Environment& env, const std::vector<Value>& items, Text& out) {
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out.Append(", ", kMarks);
    AppendRepr(env, items[i], out);
  }
}

void AppendList(Environment& env, const ListData& list, Text& out) {
  if (list.kind == ListKind::kTuple) {
    out.Append("(", kMarks);
    AppendItems(env, list.items, out);
    out.Append(list.items.size() == 1 ? ",)" : ")", kMarks);
    return;
  }
  if (list.kind == ListKind::kRange) Fail("a range has no text here; make it a list");
  const bool is_view = list.kind != ListKind::kList;
  if (is_view) {
    out.Append(list.kind == ListKind::kKeys     ? "dict_keys("
               : list.kind == ListKind::kValues ? "dict_values("
                                                : "dict_items(",
               kMarks);
  }
  out.Append("[", kMarks);
  AppendItems(env, list.items, out);
  out.Append(is_view ? "])" : "]", kMarks);
}

void AppendDict(Environment& env, const DictData& dict, Text& out) {
  out.Append("{", kMarks);
  for (size_t i = 0; i < dict.entries.size(); ++i) {
    if (i > 0) out.Append(", ", kMarks);
    AppendRepr(env, dict.entries[i].first, out);
    out.Append(": ", kMarks);
    AppendRepr(env, dict.entries[i].second, out);
  }
  out.Append("}", kMarks);
}

// Text that grows while it is written is not on the heap yet.
void CheckSize(Environment& env, const Text& out) {
  if (out.size() > env.budget().limits().live_bytes / 4) {
    throw Error{ErrorKind::kLimit, "the chat template needs too much memory"};
  }
}

}  // namespace

std::string FloatRepr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::array<char, 40> buffer{};
  const auto [end, error] =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::scientific);
  const std::string_view shortest(buffer.data(), static_cast<size_t>(end - buffer.data()));  // -d.ddde-XX
  const size_t e = shortest.find('e');
  int exponent = 0;
  std::from_chars(shortest.data() + e + (shortest[e + 1] == '+' ? 2 : 1), end, exponent);
  if (exponent < -4 || exponent >= 16) return std::string(shortest);
  std::string digits;
  for (const char c : shortest.substr(0, e)) {
    if (c != '.' && c != '-') digits += c;
  }
  std::string text = value < 0 || std::signbit(value) ? "-" : "";
  if (exponent < 0) return text + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  const auto whole = static_cast<size_t>(exponent) + 1;
  if (digits.size() <= whole) return text + digits + std::string(whole - digits.size(), '0') + ".0";
  return text + digits.substr(0, whole) + "." + digits.substr(whole);
}

void AppendStr(Environment& env, const Value& value, Text& out) {
  if (value.Is(Kind::kUndefined)) return;
  if (!value.Is(Kind::kText)) return AppendRepr(env, value, out);
  env.budget().StepBytes(value.text().size());
  out.Append(value.text());
}

void AppendRepr(Environment& env, const Value& value, Text& out) {
  env.budget().Step();
  CheckSize(env, out);
  switch (value.kind()) {
    case Kind::kUndefined:
      return out.Append("Undefined", Origin::kTemplate);
    case Kind::kNone:
      return out.Append("None", Origin::kTemplate);
    case Kind::kBool:
      return out.Append(value.boolean() ? "True" : "False", Origin::kTemplate);
    case Kind::kInt:
      return out.Append(Concat(value.integer()), value.origin());
    case Kind::kFloat:
      return out.Append(FloatRepr(value.real()), value.origin());
    case Kind::kText:
      env.budget().StepBytes(value.text().size() * 8);
      return AppendTextRepr(value.text(), out);
    case Kind::kList:
      return AppendList(env, value.list(), out);
    case Kind::kDict:
      return AppendDict(env, value.dict(), out);
    default:
      Fail(Concat("a value of type ", TypeName(value), " has no text"));
  }
}

Text Str(Environment& env, const Value& value) {
  if (value.Is(Kind::kText)) return value.text();
  Text out;
  AppendStr(env, value, out);
  return out;
}

}  // namespace sluice::engine::jinja
