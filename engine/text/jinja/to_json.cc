#include "engine/text/jinja/to_json.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <string_view>

#include "engine/files/concat.h"
#include "engine/text/jinja/arguments.h"
#include "engine/text/jinja/error.h"
#include "engine/text/jinja/operators.h"
#include "engine/text/jinja/python_text.h"
#include "engine/text/jinja/unicode.h"

namespace sluice::engine::jinja {
namespace {

constexpr Origin kMarks = Origin::kConversation;

class Writer {
 public:
  Writer(Environment& env, const JsonStyle& style) : env_(env), style_(style) {}

  void Write(const Value& value) {
    env_.budget().Step();
    if (out_.size() > env_.budget().limits().live_bytes / 4) {
      throw Error{ErrorKind::kLimit, "the chat template needs too much memory"};
    }
    switch (value.kind()) {
      case Kind::kText:
        return WriteText(value.text());
      case Kind::kDict:
        return WriteDict(value.dict());
      case Kind::kList:
        if (value.list().kind > ListKind::kTuple) break;
        return WriteList(value.list());
      default:
        if (WriteScalar(value)) return;
        break;
    }
    Fail(Concat("Object of type ", TypeName(value), " is not JSON serializable"));
  }

  Text Take() { return std::move(out_); }

 private:
  bool WriteScalar(const Value& value) {
    switch (value.kind()) {
      case Kind::kNone:
        out_.Append("null", Origin::kTemplate);
        return true;
      case Kind::kBool:
        out_.Append(value.boolean() ? "true" : "false", Origin::kTemplate);
        return true;
      case Kind::kInt:
        out_.Append(Concat(value.integer()), value.origin());
        return true;
      case Kind::kFloat:
        out_.Append(std::isnan(value.real())   ? "NaN"
                    : std::isinf(value.real()) ? (value.real() < 0 ? "-Infinity" : "Infinity")
                                               : FloatRepr(value.real()),
                    value.origin());
        return true;
      default:
        return false;
    }
  }

  void WriteUnicodeEscape(uint32_t unit, Origin origin) {
    std::array<char, 16> escape{};
    std::snprintf(escape.data(), escape.size(), "\\u%04x", unit);
    out_.Append(escape.data(), origin);
  }

  // False: the character stays as it is.
  bool WriteEscape(uint32_t c, Origin origin) {
    constexpr std::string_view kShort = "\"\\\n\r\t\f\b", kLetters = "\"\\nrtfb";
    if (const size_t at = c < 0x80 ? kShort.find(static_cast<char>(c)) : std::string_view::npos;
        at != std::string_view::npos) {
      const char escape[] = {'\\', kLetters[at]};
      out_.Append(std::string_view(escape, 2), origin);
      return true;
    }
    if (c >= 0x20 && !(style_.ensure_ascii && c >= 0x7F && c != 0x7F)) return false;
    if (c >= 0x10000) {
      WriteUnicodeEscape(0xD800 + ((c - 0x10000) >> 10), origin);
      WriteUnicodeEscape(0xDC00 + ((c - 0x10000) & 0x3FF), origin);
    } else {
      WriteUnicodeEscape(c, origin);
    }
    return true;
  }

  void WriteText(const Text& text) {
    const std::string& bytes = text.bytes();
    env_.budget().StepBytes(bytes.size() * 4);
    out_.Append("\"", kMarks);
    size_t plain = 0;  // from here to `at`: characters that stay
    for (size_t at = 0; at < bytes.size();) {
      const auto byte = static_cast<uint8_t>(bytes[at]);
      if (byte >= 0x20 && byte != '"' && byte != '\\' && (byte < 0x80 || !style_.ensure_ascii)) {
        ++at;
        continue;
      }
      const Character c = CharacterAt(bytes, at);
      out_.Append(text, plain, at);
      if (!WriteEscape(c.value, text.OriginAt(at))) out_.Append(text, at, at + c.length);
      at += c.length;
      plain = at;
    }
    out_.Append(text, plain, bytes.size());
    out_.Append("\"", kMarks);
  }

  void NewLine() {
    if (!style_.indent.has_value()) return;
    out_.Append("\n", kMarks);
    for (int i = 0; i < level_; ++i) out_.Append(*style_.indent);
  }

  void WriteList(const ListData& list) {
    if (list.items.empty()) return out_.Append("[]", kMarks);
    out_.Append("[", kMarks);
    ++level_;
    for (size_t i = 0; i < list.items.size(); ++i) {
      if (i > 0) out_.Append(style_.item_separator);
      NewLine();
      Write(list.items[i]);
    }
    --level_;
    NewLine();
    out_.Append("]", kMarks);
  }

  void WriteKey(const Value& key) {
    if (key.Is(Kind::kText)) return WriteText(key.text());
    out_.Append("\"", kMarks);
    if (!WriteScalar(key)) {
      Fail(Concat("keys must be str, int, float, bool or None, not ", TypeName(key)));
    }
    out_.Append("\"", kMarks);
  }

  void WriteDict(const DictData& dict) {
    if (dict.entries.empty()) return out_.Append("{}", kMarks);
    std::vector<const DictData::Entry*> entries;
    for (const DictData::Entry& entry : dict.entries) entries.push_back(&entry);
    if (style_.sort_keys) {
      std::stable_sort(entries.begin(), entries.end(), [&](const DictData::Entry* a, const DictData::Entry* b) {
        return Less(env_, a->first, b->first);
      });
    }
    out_.Append("{", kMarks);
    ++level_;
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) out_.Append(style_.item_separator);
      NewLine();
      WriteKey(entries[i]->first);
      out_.Append(style_.key_separator);
      Write(entries[i]->second);
    }
    --level_;
    NewLine();
    out_.Append("}", kMarks);
  }

  Environment& env_;
  const JsonStyle& style_;
  Text out_;
  int level_ = 0;
};

}  // namespace

Text ToJson(Environment& env, const Value& value, const JsonStyle& style) {
  Writer writer(env, style);
  writer.Write(value);
  return writer.Take();
}

JsonStyle JsonStyleFrom(Environment& env, const Arguments& arguments) {
  const auto given = Bind(arguments, "tojson", {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ensure_ascii = given[0] != nullptr && IsTrue(*given[0]);
  style.sort_keys = given[3] != nullptr && IsTrue(*given[3]);
  if (given[1] != nullptr && given[1]->Is(Kind::kText)) {
    style.indent = given[1]->text();
  } else if (given[1] != nullptr && !given[1]->Is(Kind::kNone)) {
    const int64_t spaces = NeedInteger(*given[1], "the indent of tojson");
    style.indent = Text(std::string(static_cast<size_t>(std::clamp<int64_t>(spaces, 0, 1000)), ' '), kMarks);
  }
  style.item_separator = Text(style.indent.has_value() ? "," : ", ", kMarks);
  style.key_separator = Text(": ", kMarks);
  if (given[2] != nullptr && !given[2]->Is(Kind::kNone)) {
    const std::vector<Value> both = ItemsOf(env, *given[2]);
    if (both.size() != 2) Fail("the separators of tojson must be two strings");
    style.item_separator = NeedText(both[0], "a separator of tojson");
    style.key_separator = NeedText(both[1], "a separator of tojson");
  }
  return style;
}

}  // namespace sluice::engine::jinja
