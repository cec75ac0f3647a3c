#include <cmath>
#include <limits>

#include "engine/files/concat.h"
#include "engine/text/jinja/error.h"
#include "engine/text/jinja/operators.h"
#include "engine/text/jinja/printf_format.h"

namespace sluice::engine::jinja {
namespace {

[[noreturn]] void Unsupported(std::string_view op, const Value& a, const Value& b) {
  if (a.Is(Kind::kUndefined)) Fail(a.why_undefined());
  if (b.Is(Kind::kUndefined)) Fail(b.why_undefined());
  if (op == "+" && (a.Is(Kind::kText) || a.Is(Kind::kList))) {
    Fail(Concat("can only concatenate ", TypeName(a), " (not \"", TypeName(b), "\") to ", TypeName(a)));
  }
  Fail(Concat("unsupported operand type(s) for ", op, ": '", TypeName(a), "' and '", TypeName(b), "'"));
}

[[noreturn]] void Overflow() {
  Fail("an integer has more than 64 bits");
}

Origin OriginOf(const Value& a, const Value& b) {
  const bool both = a.origin() == Origin::kTemplate && b.origin() == Origin::kTemplate;
  return both ? Origin::kTemplate : Origin::kConversation;
}

int64_t FloorDivide(int64_t a, int64_t b) {
  if (b == 0) Fail("integer division or modulo by zero");
  if (b == -1) {
    if (a == std::numeric_limits<int64_t>::min()) Overflow();
    return -a;
  }
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

int64_t Power(int64_t base, int64_t exponent) {
  int64_t result = 1;
  if (base == 0 || base == 1) return exponent == 0 ? 1 : base;
  if (base == -1) return exponent % 2 == 0 ? 1 : -1;
  for (; exponent > 0; --exponent) {
    if (__builtin_mul_overflow(result, base, &result)) Overflow();
  }
  return result;
}

double FloatModulo(double a, double b) {
  if (b == 0) Fail("float modulo by zero");
  double rest = std::fmod(a, b);
  if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
  return rest == 0 ? std::copysign(0.0, b) : rest;
}

Value Integers(std::string_view op, const Value& left, const Value& right) {
  const int64_t a = left.integer(), b = right.integer();
  const Origin origin = OriginOf(left, right);
  int64_t result = 0;
  bool overflow = false;
  if (op == "+") {
    overflow = __builtin_add_overflow(a, b, &result);
  } else if (op == "-") {
    overflow = __builtin_sub_overflow(a, b, &result);
  } else if (op == "*") {
    overflow = __builtin_mul_overflow(a, b, &result);
  } else if (op == "/") {
    if (b == 0) Fail("division by zero");
    return Value(static_cast<double>(a) / static_cast<double>(b), origin);
  } else if (op == "//") {
    result = FloorDivide(a, b);
  } else if (op == "%") {
    if (b == 0) Fail("integer modulo by zero");
    result = b == -1 ? 0 : a - b * FloorDivide(a, b);
  } else if (b >= 0) {
    result = Power(a, b);
  } else {
    if (a == 0) Fail("0.0 cannot be raised to a negative power");
    return Value(std::pow(static_cast<double>(a), static_cast<double>(b)), origin);
  }
  if (overflow) Overflow();
  return Value(result, origin);
}

Value Floats(std::string_view op, const Value& left, const Value& right) {
  const double a = left.real(), b = right.real();
  const Origin origin = OriginOf(left, right);
  if (op == "+") return Value(a + b, origin);
  if (op == "-") return Value(a - b, origin);
  if (op == "*") return Value(a * b, origin);
  if (op == "/") {
    if (b == 0) Fail("float division by zero");
    return Value(a / b, origin);
  }
  if (op == "//") {
    if (b == 0) Fail("float floor division by zero");
    return Value(std::floor((a - FloatModulo(a, b)) / b + 0.5), origin);
  }
  if (op == "%") return Value(FloatModulo(a, b), origin);
  const double power = std::pow(a, b);
  if (std::isnan(power) || (std::isinf(power) && std::isfinite(a))) Fail("the result of ** is no number");
  return Value(power, origin);
}

Value Repeat(Environment& env, const Value& sequence, const Value& count) {
  const int64_t times = count.integer() < 0 ? 0 : count.integer();
  const bool is_text = sequence.Is(Kind::kText);
  const size_t size = is_text ? sequence.text().size() : sequence.list().items.size() * sizeof(Value);
  const size_t limit = env.budget().limits().live_bytes;
  if (size > 0 && static_cast<uint64_t>(times) > limit / size) {
    throw Error{ErrorKind::kLimit, "the chat template needs too much memory"};
  }
  env.budget().StepBytes(size * static_cast<size_t>(times));
  if (is_text) {
    Text text;
    for (int64_t i = 0; i < times && size > 0; ++i) text.Append(sequence.text());
    return env.heap().NewText(std::move(text));
  }
  std::vector<Value> items;
  const auto& once = sequence.list().items;
  for (int64_t i = 0; i < times && size > 0; ++i) items.insert(items.end(), once.begin(), once.end());
  return env.heap().NewList(std::move(items), sequence.list().kind);
}

bool IsSequence(const Value& value) {
  return value.Is(Kind::kText) || (value.Is(Kind::kList) && value.list().kind <= ListKind::kTuple);
}

Value Join(Environment& env, const Value& a, const Value& b) {
  if (a.Is(Kind::kText)) {
    env.budget().StepBytes(a.text().size() + b.text().size());
    Text text = a.text();
    text.Append(b.text());
    return env.heap().NewText(std::move(text));
  }
  std::vector<Value> items = a.list().items;
  items.insert(items.end(), b.list().items.begin(), b.list().items.end());
  return env.heap().NewList(std::move(items), a.list().kind);
}

}  // namespace

Value Arithmetic(Environment& env, std::string_view op, const Value& a, const Value& b) {
  if (a.IsIntegral() && b.IsIntegral()) return Integers(op, a, b);
  if (a.IsNumber() && b.IsNumber()) return Floats(op, a, b);
  if (op == "+" && IsSequence(a) && a.kind() == b.kind() && (a.Is(Kind::kText) || a.list().kind == b.list().kind)) {
    return Join(env, a, b);
  }
  if (op == "*" && IsSequence(a) && b.IsIntegral()) return Repeat(env, a, b);
  if (op == "*" && IsSequence(b) && a.IsIntegral()) return Repeat(env, b, a);
  if (op == "%" && a.Is(Kind::kText)) return PrintfFormat(env, a.text(), b);
  Unsupported(op, a, b);
}

Value Sign(const Value& value, bool negative) {
  if (value.IsIntegral()) {
    int64_t result = value.integer();
    if (negative && __builtin_sub_overflow(int64_t{0}, result, &result)) Overflow();
    return Value(result, value.origin());
  }
  if (value.Is(Kind::kFloat)) return Value(negative ? -value.real() : value.real(), value.origin());
  if (value.Is(Kind::kUndefined)) Fail(value.why_undefined());
  Fail(Concat("bad operand type for unary ", negative ? "-" : "+", ": '", TypeName(value), "'"));
}

}  // namespace sluice::engine::jinja
