#include "engine/text/jinja/tests.h"

#include "engine/files/concat.h"
#include "engine/text/jinja/error.h"
#include "engine/text/jinja/filters.h"
#include "engine/text/jinja/operators.h"
#include "engine/text/jinja/python_text.h"
#include "engine/text/jinja/unicode.h"

namespace sluice::engine::jinja {
namespace {

// A test without arguments that looks at the value only.
template <bool (*kHolds)(const Value&)>
bool Plain(Environment&, const Value& value, const Arguments& arguments) {
  Bind(arguments, "the test", {});
  return kHolds(value);
}

template <Kind kKind>
bool IsKind(const Value& value) {
  return value.Is(kKind);
}

bool IsDefined(const Value& value) {
  return !value.Is(Kind::kUndefined);
}
bool IsTheTrue(const Value& value) {
  return value.Is(Kind::kBool) && value.boolean();
}
bool IsTheFalse(const Value& value) {
  return value.Is(Kind::kBool) && !value.boolean();
}
bool IsANumber(const Value& value) {
  return value.IsNumber();
}
bool Never(const Value&) {
  return false;
}

bool IsSequence(const Value& value) {
  if (value.Is(Kind::kList)) return value.list().kind <= ListKind::kRange;
  return value.Is(Kind::kText) || value.Is(Kind::kDict) || value.Is(Kind::kUndefined);
}

bool IsCallable(const Value& value) {
  if (value.Is(Kind::kMethod) || value.Is(Kind::kUndefined)) return true;
  return value.Is(Kind::kObject) && value.object()->As<Namespace>() == nullptr &&
         value.object()->As<Cycler>() == nullptr;
}

template <bool kUpper>
bool IsCase(Environment& env, const Value& value, const Arguments& arguments) {
  Bind(arguments, "the test", {});
  const Text text = Str(env, value);
  bool some = false;
  for (size_t at = 0; at < text.size(); at += CharacterAt(text.bytes(), at).length) {
    const uint32_t c = CharacterAt(text.bytes(), at).value;
    if (kUpper ? IsLower(c) : IsUpper(c)) return false;
    some = some || (kUpper ? IsUpper(c) : IsLower(c));
  }
  return some;
}

bool IsEqualTo(Environment& env, const Value& value, const Arguments& arguments) {
  return Equal(value, *Bind(arguments, "eq", {"other"}, 1)[0], &env.budget());
}
bool IsUnequalTo(Environment& env, const Value& value, const Arguments& arguments) {
  return !IsEqualTo(env, value, arguments);
}
bool IsBelow(Environment& env, const Value& value, const Arguments& arguments) {
  return Less(env, value, *Bind(arguments, "lt", {"other"}, 1)[0], "<");
}
bool IsAbove(Environment& env, const Value& value, const Arguments& arguments) {
  return Less(env, *Bind(arguments, "gt", {"other"}, 1)[0], value, ">");
}
bool IsAtMost(Environment& env, const Value& value, const Arguments& arguments) {
  return IsEqualTo(env, value, arguments) || IsBelow(env, value, arguments);
}
bool IsAtLeast(Environment& env, const Value& value, const Arguments& arguments) {
  return IsEqualTo(env, value, arguments) || IsAbove(env, value, arguments);
}

bool IsIn(Environment& env, const Value& value, const Arguments& arguments) {
  return Contains(env, *Bind(arguments, "in", {"seq"}, 1)[0], value);
}

bool IsSameAs(Environment&, const Value& value, const Arguments& arguments) {
  return value.SameAs(*Bind(arguments, "sameas", {"other"}, 1)[0]);
}

bool HasRemainder(Environment& env, const Value& value, const Value& divisor, int64_t remainder) {
  return Equal(Arithmetic(env, "%", value, divisor), Value(remainder));
}
bool IsOdd(Environment& env, const Value& value, const Arguments& arguments) {
  Bind(arguments, "odd", {});
  return HasRemainder(env, value, Value(int64_t{2}), 1);
}
bool IsEven(Environment& env, const Value& value, const Arguments& arguments) {
  Bind(arguments, "even", {});
  return HasRemainder(env, value, Value(int64_t{2}), 0);
}
bool IsDivisibleBy(Environment& env, const Value& value, const Arguments& arguments) {
  return HasRemainder(env, value, *Bind(arguments, "divisibleby", {"num"}, 1)[0], 0);
}

bool IsFilterName(Environment&, const Value& value, const Arguments&) {
  NeedHashable(value);
  return value.Is(Kind::kText) && FindFilter(value.bytes()) != nullptr;
}
bool IsTestName(Environment&, const Value& value, const Arguments&) {
  NeedHashable(value);
  return value.Is(Kind::kText) && FindTest(value.bytes()) != nullptr;
}

struct Entry {
  std::string_view name;
  Test test;
};

constexpr Entry kTests[] = {
    {"defined", Plain<IsDefined>},
    {"undefined", Plain<IsKind<Kind::kUndefined>>},
    {"none", Plain<IsKind<Kind::kNone>>},
    {"boolean", Plain<IsKind<Kind::kBool>>},
    {"true", Plain<IsTheTrue>},
    {"false", Plain<IsTheFalse>},
    {"integer", Plain<IsKind<Kind::kInt>>},
    {"float", Plain<IsKind<Kind::kFloat>>},
    {"number", Plain<IsANumber>},
    {"string", Plain<IsKind<Kind::kText>>},
    {"mapping", Plain<IsKind<Kind::kDict>>},
    {"sequence", Plain<IsSequence>},
    {"iterable", Plain<IsIterable>},
    {"callable", Plain<IsCallable>},
    {"escaped", Plain<Never>},
    {"lower", IsCase<false>},
    {"upper", IsCase<true>},
    {"odd", IsOdd},
    {"even", IsEven},
    {"divisibleby", IsDivisibleBy},
    {"in", IsIn},
    {"sameas", IsSameAs},
    {"eq", IsEqualTo},
    {"==", IsEqualTo},
    {"equalto", IsEqualTo},
    {"ne", IsUnequalTo},
    {"!=", IsUnequalTo},
    {"lt", IsBelow},
    {"<", IsBelow},
    {"lessthan", IsBelow},
    {"gt", IsAbove},
    {">", IsAbove},
    {"greaterthan", IsAbove},
    {"le", IsAtMost},
    {"<=", IsAtMost},
    {"ge", IsAtLeast},
    {">=", IsAtLeast},
    {"filter", IsFilterName},
    {"test", IsTestName},
};

}  // namespace

Test FindTest(std::string_view name) {
  for (const Entry& entry : kTests) {
    if (entry.name == name) return entry.test;
  }
  return nullptr;
}

bool CallTest(Environment& env, std::string_view name, const Value& value, const Arguments& arguments) {
  const Test test = FindTest(name);
  if (test == nullptr) Fail(Concat("No test named '", name, "'."));
  env.budget().Step();
  return test(env, value, arguments);
}

}  // namespace sluice::engine::jinja
