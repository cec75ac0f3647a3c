#include "engine/text/jinja/str_format.h"

#include <charconv>
#include <string>
#include <string_view>

#include "engine/files/concat.h"
#include "engine/text/jinja/error.h"
#include "engine/text/jinja/operators.h"
#include "engine/text/jinja/printf_format.h"
#include "engine/text/jinja/python_text.h"
#include "engine/text/jinja/text_edits.h"
#include "engine/text/jinja/unicode.h"

namespace sluice::engine::jinja {
namespace {

bool ParseNumber(std::string_view text, int64_t* number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *number);
  return error == std::errc{} && end == text.data() + text.size() && !text.empty() && text[0] != '-';
}

class Formatter {
 public:
  Formatter(Environment& env, const Text& format, const Arguments& arguments)
      : env_(env), format_(format), arguments_(arguments) {}

  Text Run() {
    const std::string& bytes = format_.bytes();
    size_t at = 0;
    while (at < bytes.size()) {
      const size_t brace = bytes.find_first_of("{}", at);
      if (brace == std::string::npos) break;
      out_.Append(format_, at, brace);
      if (brace + 1 < bytes.size() && bytes[brace + 1] == bytes[brace]) {
        out_.Append(format_, brace, brace + 1);
        at = brace + 2;
        continue;
      }
      const size_t end = bytes.find_first_of("{}", brace + 1);
      if (bytes[brace] == '}') Fail("Single '}' encountered in format string");
      if (end == std::string::npos) Fail("expected '}' before end of string");
      if (bytes[end] == '{') Fail("nested fields in format strings are not supported in chat templates");
      Field(std::string_view(bytes).substr(brace + 1, end - brace - 1));
      at = end + 1;
    }
    out_.Append(format_, std::min(at, bytes.size()), bytes.size());
    return std::move(out_);
  }

 private:
  void Field(std::string_view field) {
    const size_t colon = std::min(field.find(':'), field.size());
    const std::string_view specification = field.substr(std::min(colon + 1, field.size()));
    std::string_view name = field.substr(0, colon);
    char conversion = '\0';
    if (const size_t mark = name.find('!'); mark != std::string_view::npos) {
      conversion = mark + 2 == name.size() ? name[mark + 1] : '?';
      if (conversion != 's' && conversion != 'r') Fail("a format string has an unknown conversion");
      name = name.substr(0, mark);
    }
    const Value value = Lookup(name);
    Text text;
    if (conversion == 'r') {
      AppendRepr(env_, value, text);
    } else if (conversion == 's' || specification.empty()) {
      AppendStr(env_, value, text);
    }
    if (conversion != '\0') return Formatted(env_.heap().NewText(std::move(text)), specification);
    if (specification.empty()) return out_.Append(text);
    Formatted(value, specification);
  }

  Value Lookup(std::string_view name) {
    const size_t end = std::min(name.find_first_of(".["), name.size());
    Value value = First(name.substr(0, end));
    for (size_t at = end; at < name.size();) {
      if (name[at] == '.') {
        const size_t stop = std::min(name.find_first_of(".[", at + 1), name.size());
        value = GetAttribute(env_, value, std::string(name.substr(at + 1, stop - at - 1)));
        at = stop;
        continue;
      }
      const size_t stop = name.find(']', at);
      if (name[at] != '[' || stop == std::string_view::npos) Fail("Missing ']' in format string");
      const std::string_view key = name.substr(at + 1, stop - at - 1);
      int64_t index = 0;
      value =
          GetItem(env_, value,
                  ParseNumber(key, &index) ? Value(index) : env_.heap().NewText(std::string(key), Origin::kTemplate));
      at = stop + 1;
    }
    return value;
  }

  Value First(std::string_view name) {
    int64_t index = static_cast<int64_t>(next_);
    if (name.empty()) ++next_;
    if (name.empty() || ParseNumber(name, &index)) {
      if (index >= static_cast<int64_t>(arguments_.positional.size())) {
        Fail(Concat("Replacement index ", index, " out of range for positional args tuple"));
      }
      return arguments_.positional[static_cast<size_t>(index)];
    }
    for (const auto& [key, value] : arguments_.named) {
      if (key == name) return value;
    }
    Fail(Concat("there is no '", name, "' for the format string"));
  }

  void Formatted(const Value& value, std::string_view specification) {
    Text fill(" ", Origin::kConversation);
    char align = '\0';
    const auto is_align = [](char c) { return c == '<' || c == '>' || c == '^'; };
    if (!specification.empty()) {
      const size_t first = CharacterAt(specification, 0).length;
      if (first < specification.size() && is_align(specification[first])) {
        fill = Text(std::string(specification.substr(0, first)), Origin::kConversation);
        align = specification[first];
        specification.remove_prefix(first + 1);
      } else if (is_align(specification[0])) {
        align = specification[0];
        specification.remove_prefix(1);
      }
    }
    if (!specification.empty() && specification[0] == '0' && value.IsNumber() && align == '\0') {
      fill = Text("0", Origin::kConversation);
      align = '>';
      if (value.real() < 0) Fail("zeros before negative numbers are not supported in format strings");
    }
    const size_t dot = std::min(specification.find_first_not_of("0123456789"), specification.size());
    int64_t width = 0;
    if (dot > 0 && (!ParseNumber(specification.substr(0, dot), &width) || width > 1000)) {
      Fail("a width of a format string is too large");
    }
    const Text text = Body(value, specification.substr(dot));
    if (align == '\0') align = value.IsNumber() ? '>' : '<';
    const int64_t left_over = std::max<int64_t>(0, width - static_cast<int64_t>(CountCharacters(text.bytes())));
    const int64_t before = align == '<' ? 0 : align == '>' ? left_over : left_over / 2;
    for (int64_t i = 0; i < before; ++i) out_.Append(fill);
    out_.Append(text);
    for (int64_t i = before; i < left_over; ++i) out_.Append(fill);
  }

  // `rest`: [.precision][type].
  Text Body(const Value& value, std::string_view rest) {
    const char last = rest.empty() ? '\0' : rest.back();
    const bool has_type = (last >= 'a' && last <= 'z') || (last >= 'A' && last <= 'Z');
    if (std::string_view("sdfeEgGxXo").find(has_type ? last : 's') == std::string_view::npos) {
      Fail(Concat("the format '", rest, "' is not supported in chat templates"));
    }
    if (value.IsNumber() && !has_type && rest.empty()) return Str(env_, value);
    const char type = has_type ? last : value.Is(Kind::kText) ? 's' : 'g';
    if ((type == 's') != value.Is(Kind::kText)) {
      Fail(Concat("Unknown format code '", std::string(1, type), "' for object of type '", TypeName(value), "'"));
    }
    const std::string format = Concat("%", rest.substr(0, rest.size() - (has_type ? 1 : 0)), std::string(1, type));
    return PrintfFormat(env_, Text(format, Origin::kConversation), value).text();
  }

  Environment& env_;
  const Text& format_;
  const Arguments& arguments_;
  Text out_;
  size_t next_ = 0;
};

}  // namespace

Text StrFormat(Environment& env, const Text& format, const Arguments& arguments) {
  return Formatter(env, format, arguments).Run();
}

}  // namespace sluice::engine::jinja
