// Filters about numbers, and the ones for any value.
#include <charconv>
#include <cmath>
#include <limits>

#include "engine/files/concat.h"
#include "engine/text/jinja/error.h"
#include "engine/text/jinja/filters.h"
#include "engine/text/jinja/methods.h"
#include "engine/text/jinja/operators.h"
#include "engine/text/jinja/text_edits.h"

namespace sluice::engine::jinja {
namespace {

std::string WithoutUnderscores(std::string_view text) {
  std::string digits;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool between = text[i] == '_' && i > 0 && i + 1 < text.size() && text[i - 1] != '_' && text[i + 1] != '_';
    if (!between) digits += text[i];
  }
  return digits;
}

// What Python's int(text, base) and float(text) take, or nothing.
std::optional<int64_t> ParseInteger(const Text& text, int base) {
  std::string digits = WithoutUnderscores(Strip(text, Side::kBoth, std::nullopt).bytes());
  const bool negative = digits.starts_with('-');
  if (negative || digits.starts_with('+')) digits.erase(0, 1);
  if (digits.size() > 2 && digits[0] == '0') {
    const int prefix = (digits[1] | 0x20) == 'x'   ? 16
                       : (digits[1] | 0x20) == 'o' ? 8
                       : (digits[1] | 0x20) == 'b' ? 2
                                                   : 0;
    if (prefix != 0 && (base == prefix || base == 0)) {
      base = prefix;
      digits.erase(0, 2);
    }
  }
  if (base == 0) base = 10;
  if (digits.empty() || digits[0] == '-') return std::nullopt;
  int64_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number, base);
  if (error != std::errc{} || end != digits.data() + digits.size()) return std::nullopt;
  return negative ? -number : number;
}

std::optional<double> ParseFloat(const Text& text) {
  std::string digits = WithoutUnderscores(Strip(text, Side::kBoth, std::nullopt).bytes());
  const bool negative = digits.starts_with('-');
  if (negative || digits.starts_with('+')) digits.erase(0, 1);
  if (digits.empty() || digits[0] == '-') return std::nullopt;
  double number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (end != digits.data() + digits.size()) return std::nullopt;
  if (error == std::errc::result_out_of_range) number = std::numeric_limits<double>::infinity();
  return negative ? -number : number;
}

std::optional<int64_t> Truncated(double number) {
  if (!(number > -9.2e18 && number < 9.2e18)) return std::nullopt;
  return static_cast<int64_t>(number);
}

Origin OriginOfNumber(const Value& value) {
  return value.Is(Kind::kText) ? value.text().OriginOfAll() : value.origin();
}

Value IntFilter(Environment&, const Value& value, const Arguments& arguments) {
  const auto given = Bind(arguments, "int", {"default", "base"});
  const int64_t base = given[1] != nullptr ? NeedInteger(*given[1], "base") : 10;
  if (base != 0 && (base < 2 || base > 36)) Fail("int() base must be >= 2 and <= 36, or 0");
  std::optional<int64_t> number;
  if (value.IsIntegral()) number = value.integer();
  if (value.Is(Kind::kFloat)) number = Truncated(value.real());
  if (value.Is(Kind::kText)) {
    number = ParseInteger(value.text(), static_cast<int>(base));
    if (!number.has_value()) {
      if (const std::optional<double> real = ParseFloat(value.text())) number = Truncated(*real);
    }
  }
  if (value.Is(Kind::kUndefined)) Fail(value.why_undefined());
  if (number.has_value()) return Value(*number, OriginOfNumber(value));
  return given[0] != nullptr ? *given[0] : Value(int64_t{0});
}

Value FloatFilter(Environment&, const Value& value, const Arguments& arguments) {
  const auto given = Bind(arguments, "float", {"default"});
  if (value.Is(Kind::kUndefined)) Fail(value.why_undefined());
  if (value.IsNumber()) return Value(value.real(), value.origin());
  if (value.Is(Kind::kText)) {
    if (const std::optional<double> number = ParseFloat(value.text())) return Value(*number, OriginOfNumber(value));
  }
  return given[0] != nullptr ? *given[0] : Value(0.0);
}

Value AbsFilter(Environment&, const Value& value, const Arguments& arguments) {
  Bind(arguments, "abs", {});
  if (!value.IsNumber()) Fail(Concat("bad operand type for abs(): '", TypeName(value), "'"));
  return value.real() < 0 ? Sign(value, /*negative=*/true) : Sign(value, /*negative=*/false);
}

// To the even neighbour from the middle between two, as Python's round().
double RoundTo(double number, int64_t digits) {
  if (!std::isfinite(number)) return number;
  char buffer[400];
  if (digits >= 0) {  // printf rounds the exact value
    std::snprintf(buffer, sizeof(buffer), "%.*f", static_cast<int>(std::min<int64_t>(digits, 60)), number);
    return std::strtod(buffer, nullptr);
  }
  const double scale = std::pow(10.0, static_cast<double>(-digits));
  return std::nearbyint(number / scale) * scale;
}

Value RoundFilter(Environment&, const Value& value, const Arguments& arguments) {
  const auto given = Bind(arguments, "round", {"precision", "method"});
  const int64_t precision = given[0] != nullptr ? NeedInteger(*given[0], "precision") : 0;
  const std::string method = given[1] != nullptr ? NeedText(*given[1], "method").bytes() : "common";
  if (!value.IsNumber()) Fail(Concat("type ", TypeName(value), " doesn't define __round__ method"));
  if (precision < -300 || precision > 300) Fail("round: the precision is out of range");
  if (method == "common") {
    if (value.IsIntegral() && precision >= 0) return Value(value.integer(), value.origin());
    if (value.IsIntegral()) Fail("rounding integers to tens is not supported in chat templates");
    return Value(RoundTo(value.real(), precision), value.origin());
  }
  if (method != "ceil" && method != "floor") Fail("method must be common, ceil or floor");
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const double scaled = value.real() * scale;
  return Value((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale, value.origin());
}

Value DefaultFilter(Environment& env, const Value& value, const Arguments& arguments) {
  const auto given = Bind(arguments, "default", {"default_value", "boolean"});
  const bool by_truth = given[1] != nullptr && IsTrue(*given[1]);
  if (!value.Is(Kind::kUndefined) && (!by_truth || IsTrue(value))) return value;
  return given[0] != nullptr ? *given[0] : env.heap().NewText("", Origin::kTemplate);
}

Value LengthFilter(Environment& env, const Value& value, const Arguments& arguments) {
  Bind(arguments, "length", {});
  if (value.Is(Kind::kText)) env.budget().StepBytes(value.text().size());
  const int64_t length = LengthOf(value);
  if (length < 0) Fail(Concat("object of type '", TypeName(value), "' has no len()"));
  return Value(length);
}

Value AttrFilter(Environment& env, const Value& value, const Arguments& arguments) {
  const auto given = Bind(arguments, "attr", {"name"}, 1);
  const std::string& name = NeedText(*given[0], "the name of an attribute").bytes();
  if (value.Is(Kind::kObject) || value.Is(Kind::kUndefined) || HasMethod(value, name)) {
    return GetAttribute(env, value, name);
  }
  return Heap::NewUndefined(Concat("'", TypeName(value), " object' has no attribute '", name, "'"));
}

struct Entry {
  std::string_view name;
  Filter filter;
};

constexpr Entry kFilters[] = {
    {"int", IntFilter},       {"float", FloatFilter},     {"abs", AbsFilter},
    {"round", RoundFilter},   {"default", DefaultFilter}, {"d", DefaultFilter},
    {"length", LengthFilter}, {"count", LengthFilter},    {"attr", AttrFilter},
};

}  // namespace

Filter FindNumberFilter(std::string_view name) {
  for (const Entry& entry : kFilters) {
    if (entry.name == name) return entry.filter;
  }
  return nullptr;
}

}  // namespace sluice::engine::jinja
