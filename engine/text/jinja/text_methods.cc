// The methods of strings.
#include <algorithm>

#include "engine/files/concat.h"
#include "engine/text/jinja/error.h"
#include "engine/text/jinja/methods.h"
#include "engine/text/jinja/operators.h"
#include "engine/text/jinja/str_format.h"
#include "engine/text/jinja/text_edits.h"
#include "engine/text/jinja/unicode.h"

namespace sluice::engine::jinja {
namespace {

struct Call {
  Environment& env;
  const Text& text;
  const std::string& name;
  const Arguments& arguments;
};

Value ListOf(Environment& env, std::vector<Text> texts, ListKind kind = ListKind::kList) {
  std::vector<Value> items;
  items.reserve(texts.size());
  for (Text& text : texts) items.push_back(env.heap().NewText(std::move(text)));
  return env.heap().NewList(std::move(items), kind);
}

Value StripCall(const Call& call) {
  const auto given = Bind(call.arguments, call.name, {"chars"});
  std::optional<std::string_view> characters;
  if (given[0] != nullptr && !given[0]->Is(Kind::kNone)) characters = NeedText(*given[0], "chars").bytes();
  const Side side = call.name == "strip" ? Side::kBoth : call.name == "lstrip" ? Side::kLeft : Side::kRight;
  if (characters.has_value()) call.env.budget().Step(static_cast<int64_t>(characters->size()));
  return call.env.heap().NewText(Strip(call.text, side, characters));
}

Value SplitCall(const Call& call) {
  const auto given = Bind(call.arguments, call.name, {"sep", "maxsplit"});
  const int64_t most = given[1] != nullptr ? NeedInteger(*given[1], "maxsplit") : -1;
  const bool from_right = call.name == "rsplit";
  if (given[0] == nullptr || given[0]->Is(Kind::kNone)) {
    return ListOf(call.env, SplitAtSpace(call.text, most, from_right));
  }
  const Text& separator = NeedText(*given[0], "the separator");
  if (separator.empty()) Fail("empty separator");
  return ListOf(call.env, SplitAt(call.text, separator.bytes(), most, from_right));
}

Value PartitionCall(const Call& call) {
  const bool from_right = call.name == "rpartition";
  const auto given = Bind(call.arguments, call.name, {"sep"}, 1);
  const Text& separator = NeedText(*given[0], "the separator");
  if (separator.empty()) Fail("empty separator");
  const std::string& bytes = call.text.bytes();
  const size_t found = from_right ? bytes.rfind(separator.bytes()) : bytes.find(separator.bytes());
  if (found == std::string::npos) {
    return ListOf(call.env, from_right ? std::vector<Text>{{}, {}, call.text} : std::vector<Text>{call.text, {}, {}},
                  ListKind::kTuple);
  }
  const size_t end = found + separator.size();
  return ListOf(call.env, {call.text.Sub(0, found), call.text.Sub(found, end), call.text.Sub(end, bytes.size())},
                ListKind::kTuple);
}

// The bytes between two characters that arguments count; false: the beginning lies past the end.
bool Window(const Call& call, const Value* begin, const Value* end, std::string_view* window, size_t* skipped) {
  const auto size = static_cast<int64_t>(CountCharacters(call.text.bytes()));
  const auto place = [&](const Value* v, int64_t otherwise) {
    if (v == nullptr || v->Is(Kind::kNone)) return otherwise;
    const int64_t at = NeedInteger(*v, "a position");
    return at < 0 ? std::max<int64_t>(0, at + size) : at;
  };
  const int64_t first = place(begin, 0), last = std::min(place(end, size), size);
  if (first > size) return false;
  const std::string_view bytes = call.text.bytes();
  *skipped = ByteOfCharacter(bytes, static_cast<size_t>(first));
  const size_t stop = ByteOfCharacter(bytes, static_cast<size_t>(std::max<int64_t>(0, last)));
  if (stop < *skipped) return false;
  *window = bytes.substr(*skipped, stop - *skipped);
  return true;
}

Value AffixCall(const Call& call) {
  const auto given = Bind(call.arguments, call.name, {"affix", "start", "end"}, 1);
  std::vector<Value> affixes{*given[0]};
  if (given[0]->Is(Kind::kList) && given[0]->list().kind == ListKind::kTuple) affixes = given[0]->list().items;
  std::string_view window;
  size_t skipped = 0;
  const bool is_inside = Window(call, given[1], given[2], &window, &skipped);
  for (const Value& affix : affixes) {
    const std::string& bytes = NeedText(affix, Concat(call.name, " first arg")).bytes();
    if (is_inside && (call.name == "startswith" ? window.starts_with(bytes) : window.ends_with(bytes))) {
      return Value(true);
    }
  }
  return Value(false);
}

Value FindCall(const Call& call) {
  const auto given = Bind(call.arguments, call.name, {"sub", "start", "end"}, 1);
  const std::string& sub = NeedText(*given[0], "sub").bytes();
  std::string_view window;
  size_t skipped = 0;
  size_t found = std::string_view::npos;
  if (Window(call, given[1], given[2], &window, &skipped)) {
    found = call.name[0] == 'r' ? window.rfind(sub) : window.find(sub);
  }
  if (found != std::string_view::npos) {
    return Value(static_cast<int64_t>(CountCharacters(std::string_view(call.text.bytes()).substr(0, skipped + found))));
  }
  if (call.name == "index" || call.name == "rindex") Fail("substring not found");
  return Value(int64_t{-1});
}

Value CountCall(const Call& call) {
  const auto given = Bind(call.arguments, call.name, {"sub", "start", "end"}, 1);
  const std::string& sub = NeedText(*given[0], "sub").bytes();
  std::string_view window;
  size_t skipped = 0;
  if (!Window(call, given[1], given[2], &window, &skipped)) return Value(int64_t{0});
  if (sub.empty()) return Value(static_cast<int64_t>(CountCharacters(window)) + 1);
  int64_t count = 0;
  for (size_t at = 0; (at = window.find(sub, at)) != std::string_view::npos; at += sub.size()) ++count;
  return Value(count);
}

Value JoinCall(const Call& call) {
  const auto given = Bind(call.arguments, call.name, {"iterable"}, 1);
  Text joined;
  const std::vector<Value> items = ItemsOf(call.env, *given[0]);
  for (size_t i = 0; i < items.size(); ++i) {
    if (!items[i].Is(Kind::kText)) {
      Fail(Concat("sequence item ", i, ": expected str instance, ", TypeName(items[i]), " found"));
    }
    call.env.budget().StepBytes(call.text.size() + items[i].text().size());
    if (i > 0) joined.Append(call.text);
    joined.Append(items[i].text());
  }
  return call.env.heap().NewText(std::move(joined));
}

Value ReplaceCall(const Call& call) {
  const auto given = Bind(call.arguments, call.name, {"old", "new", "count"}, 2);
  return call.env.heap().NewText(Replace(call.env, call.text, NeedText(*given[0], "old"), NeedText(*given[1], "new"),
                                         given[2] != nullptr ? NeedInteger(*given[2], "count") : -1));
}

Value RemoveCall(const Call& call) {
  const auto given = Bind(call.arguments, call.name, {"affix"}, 1);
  const std::string& affix = NeedText(*given[0], "the affix").bytes();
  const size_t size = call.text.size();
  if (call.name == "removeprefix" && call.text.bytes().starts_with(affix)) {
    return call.env.heap().NewText(call.text.Sub(affix.size(), size));
  }
  if (call.name == "removesuffix" && call.text.bytes().ends_with(affix)) {
    return call.env.heap().NewText(call.text.Sub(0, size - affix.size()));
  }
  return call.env.heap().NewText(call.text);
}

Value PadCall(const Call& call) {
  const auto given = Bind(call.arguments, call.name, {"width", "fillchar"}, 1);
  const int64_t width = NeedInteger(*given[0], "width");
  Text fill(" ", Origin::kConversation);
  if (given[1] != nullptr) fill = NeedText(*given[1], "fillchar");
  if (CountCharacters(fill.bytes()) != 1) Fail("The fill character must be exactly one character long");
  if (call.name == "center") return call.env.heap().NewText(Center(call.env, call.text, width, fill));
  return call.env.heap().NewText(
      Pad(call.env, call.text, width, call.name == "ljust" ? Side::kRight : Side::kLeft, fill));
}

Value ZfillCall(const Call& call) {
  const auto given = Bind(call.arguments, call.name, {"width"}, 1);
  const bool has_sign = call.text.bytes().starts_with('-') || call.text.bytes().starts_with('+');
  Text out = call.text.Sub(0, has_sign ? 1 : 0);
  out.Append(Pad(call.env, call.text.Sub(has_sign ? 1 : 0, call.text.size()),
                 NeedInteger(*given[0], "width") - (has_sign ? 1 : 0), Side::kLeft, Text("0", Origin::kConversation)));
  return call.env.heap().NewText(std::move(out));
}

Value CaseCall(const Call& call) {
  Bind(call.arguments, call.name, {});
  const Case kind = call.name == "upper"        ? Case::kUpper
                    : call.name == "lower"      ? Case::kLower
                    : call.name == "capitalize" ? Case::kCapitalize
                    : call.name == "title"      ? Case::kPythonTitle
                                                : Case::kSwap;
  return call.env.heap().NewText(ChangeCase(call.text, kind));
}

// Whether all characters (at least one) hold.
template <typename Holds>
bool All(const Call& call, const Holds& holds) {
  const std::string& bytes = call.text.bytes();
  for (size_t at = 0; at < bytes.size(); at += CharacterAt(bytes, at).length) {
    if (!holds(CharacterAt(bytes, at).value)) return false;
  }
  return !bytes.empty();
}

// Some letter has the case, and none has another.
bool AllOfCase(const Call& call, bool upper) {
  bool some = false;
  const bool none_other = All(call, [&](uint32_t c) {
    some = some || (upper ? IsUpper(c) : IsLower(c));
    return !(upper ? IsLower(c) : IsUpper(c));
  });
  return some && none_other;
}

Value IsCall(const Call& call) {
  Bind(call.arguments, call.name, {});
  call.env.budget().StepBytes(call.text.size() * 32);
  const std::string& name = call.name;
  if (name == "isspace") return Value(All(call, IsSpace));
  if (name == "isalpha") return Value(All(call, IsLetter));
  if (name == "isdigit" || name == "isdecimal" || name == "isnumeric") return Value(All(call, IsDecimalDigit));
  if (name == "isalnum") return Value(All(call, [](uint32_t c) { return IsLetter(c) || IsDecimalDigit(c); }));
  if (name == "isascii") return Value(call.text.empty() || All(call, [](uint32_t c) { return c < 0x80; }));
  if (name == "isprintable") return Value(call.text.empty() || All(call, IsPrintable));
  if (name == "isupper" || name == "islower") return Value(AllOfCase(call, name == "isupper"));
  Fail(Concat("the string method '", name, "' is not supported in chat templates"));
}

Value SplitLinesCall(const Call& call) {
  const auto given = Bind(call.arguments, call.name, {"keepends"});
  return ListOf(call.env, SplitLines(call.text, given[0] != nullptr && IsTrue(*given[0])));
}

Value FormatCall(const Call& call) {
  return call.env.heap().NewText(StrFormat(call.env, call.text, call.arguments));
}

struct Entry {
  std::string_view name;
  Value (*run)(const Call&);
};

constexpr Entry kMethods[] = {
    {"strip", StripCall},         {"lstrip", StripCall},        {"rstrip", StripCall},
    {"split", SplitCall},         {"rsplit", SplitCall},        {"startswith", AffixCall},
    {"endswith", AffixCall},      {"replace", ReplaceCall},     {"join", JoinCall},
    {"upper", CaseCall},          {"lower", CaseCall},          {"title", CaseCall},
    {"capitalize", CaseCall},     {"swapcase", CaseCall},       {"find", FindCall},
    {"rfind", FindCall},          {"index", FindCall},          {"rindex", FindCall},
    {"count", CountCall},         {"partition", PartitionCall}, {"rpartition", PartitionCall},
    {"removeprefix", RemoveCall}, {"removesuffix", RemoveCall}, {"splitlines", SplitLinesCall},
    {"ljust", PadCall},           {"rjust", PadCall},           {"center", PadCall},
    {"zfill", ZfillCall},         {"format", FormatCall},
};

}  // namespace

Value CallTextMethod(Environment& env, const Text& text, const std::string& name, const Arguments& arguments) {
  const Call call{env, text, name, arguments};
  for (const Entry& entry : kMethods) {
    if (entry.name == name) return entry.run(call);
  }
  return IsCall(call);
}

}  // namespace sluice::engine::jinja
