#include "engine/text/jinja/functions.h"

#include <array>
#include <ctime>

#include "engine/files/concat.h"
#include "engine/text/jinja/error.h"
#include "engine/text/jinja/operators.h"
#include "engine/text/jinja/python_text.h"

namespace sluice::engine::jinja {
namespace {

constexpr int64_t kMaxRange = 100'000;  // as in jinja2's sandbox

Value Range(Environment& env, const Arguments& arguments) {
  Bind(arguments, "range", {"start", "stop", "step"}, 1);
  if (!arguments.named.empty()) Fail("range() takes no keyword arguments");
  std::array<int64_t, 3> given{0, 0, 1};
  for (size_t i = 0; i < arguments.positional.size(); ++i) {
    given[i] = NeedInteger(arguments.positional[i], "an argument of range");
  }
  if (arguments.positional.size() == 1) std::swap(given[0], given[1]);
  const auto [start, stop, step] = given;
  if (step == 0) Fail("range() arg 3 must not be zero");
  std::vector<Value> items;
  for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
    if (items.size() == kMaxRange) {
      Fail(Concat("Range too big. The sandbox blocks ranges larger than MAX_RANGE (", kMaxRange, ")."));
    }
    items.push_back(Value(i));
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return env.heap().NewList(std::move(items), ListKind::kRange);
}

// The entries of dict(...) and namespace(...): a mapping or pairs, then names.
std::vector<DictData::Entry> Entries(Environment& env, const Arguments& arguments) {
  std::vector<DictData::Entry> entries;
  if (arguments.positional.size() > 1) Fail("dict expected at most 1 argument");
  for (const Value& given : arguments.positional) {
    if (given.Is(Kind::kDict)) {
      entries = given.dict().entries;
      continue;
    }
    for (const Value& pair : ItemsOf(env, given)) {
      std::vector<Value> both = ItemsOf(env, pair);
      if (both.size() != 2) Fail("dict takes pairs of a key and a value");
      entries.emplace_back(std::move(both[0]), std::move(both[1]));
    }
  }
  for (const auto& [name, value] : arguments.named) {
    entries.emplace_back(env.heap().NewText(name, Origin::kTemplate), value);
  }
  return entries;
}

Value Dict(Environment& env, const Arguments& arguments) {
  DictBuilder dict;
  int64_t others = 0;  // keys that are not text are looked for in turn
  for (auto& [key, value] : Entries(env, arguments)) {
    NeedHashable(key);
    if (!key.Is(Kind::kText)) env.budget().Step(++others);
    dict.Set(std::move(key), std::move(value));
  }
  return env.heap().NewDict(std::move(dict));
}

Value NewNamespace(Environment& env, const Arguments& arguments) {
  Namespace space;
  for (auto& [key, value] : Entries(env, arguments)) {
    const std::string& name = NeedText(key, "the name of an attribute").bytes();
    bool is_new = true;
    for (auto& [known, old] : space.attributes) {
      if (known == name) {
        old = value;
        is_new = false;
      }
    }
    if (is_new) space.attributes.emplace_back(name, std::move(value));
  }
  return env.NewObject({std::move(space)});
}

// As datetime.now().strftime(), which knows %f and leaves the zone empty.
Value StrftimeNow(Environment& env, const Arguments& arguments) {
  const std::string& given = NeedText(*Bind(arguments, "strftime_now", {"format"}, 1)[0], "the format").bytes();
  if (given.empty()) return env.heap().NewText("", Origin::kTemplate);
  std::string format;
  for (size_t i = 0; i < given.size(); ++i) {
    const char next = given[i] == '%' && i + 1 < given.size() ? given[i + 1] : '\0';
    if (next == 'f') format += "000000";
    if (next == 'f' || next == 'z' || next == 'Z') {
      ++i;
      continue;
    }
    format += given[i];
    if (next != '\0') format += given[++i];
  }
  if (format.empty()) return env.heap().NewText("", Origin::kTemplate);
  std::array<char, 4096> text{};
  const size_t size = std::strftime(text.data(), text.size(), format.c_str(), &env.now());
  if (size == 0) Fail("strftime_now: the text is empty or too long");
  return env.heap().NewText(std::string(text.data(), size), Origin::kTemplate);
}

}  // namespace

Value CallFunction(Environment& env, Function function, const Arguments& arguments) {
  switch (function) {
    case Function::kRange:
      return Range(env, arguments);
    case Function::kDict:
      return Dict(env, arguments);
    case Function::kNamespace:
      return NewNamespace(env, arguments);
    case Function::kCycler:
      if (arguments.positional.empty()) Fail("at least one item has to be provided");
      return env.NewObject({Cycler{arguments.positional}});
    case Function::kJoiner: {
      const auto given = Bind(arguments, "joiner", {"sep"});
      return env.NewObject({Joiner{given[0] != nullptr ? *given[0] : env.heap().NewText(", ", Origin::kTemplate)}});
    }
    case Function::kRaiseException:
      throw Error{ErrorKind::kRaised, Str(env, *Bind(arguments, "raise_exception", {"message"}, 1)[0]).bytes()};
    case Function::kStrftimeNow:
      return StrftimeNow(env, arguments);
  }
  return Value();
}

}  // namespace sluice::engine::jinja
