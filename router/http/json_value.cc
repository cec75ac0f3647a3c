#include "router/http/json_value.h"

#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"

namespace sluice::router {

const char* Kind(const JsonValue& value) {
  static constexpr const char* kKinds[] = {"null",     "a boolean", "a number", "a number",
                                           "a number", "a string",  "an array"};
  return kKinds[value.index()];
}

absl::Status BadField(absl::string_view field, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(field, ": ", what));
}

absl::Status WrongType(absl::string_view field, absl::string_view wanted, absl::string_view got) {
  return BadField(field, absl::StrCat("must be ", wanted, ", got ", got));
}

absl::StatusOr<uint64_t> ToWhole(absl::string_view field, const JsonValue& value, int64_t min, uint64_t max) {
  bool fits = false;
  uint64_t bits = 0;
  if (const int64_t* i = std::get_if<int64_t>(&value)) {
    bits = uint64_t(*i);
    fits = *i < 0 ? *i >= min : bits <= max;
  } else if (const uint64_t* u = std::get_if<uint64_t>(&value)) {
    bits = *u;
    fits = bits <= max;
  } else if (const double* d = std::get_if<double>(&value)) {
    if (*d != std::floor(*d)) return WrongType(field, "an integer", "a fraction");
    fits = std::abs(*d) < 0x1p53 && (*d < 0 ? *d >= double(min) : *d <= double(max));
    if (fits) bits = uint64_t(int64_t(*d));
  } else {
    return WrongType(field, "an integer", Kind(value));
  }
  if (!fits) return BadField(field, "is out of range");
  return bits;
}

absl::StatusOr<int32_t> ToInt(absl::string_view field, const JsonValue& value) {
  const auto whole = ToWhole(field, value, std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max());
  if (!whole.ok()) return whole.status();
  return int32_t(uint32_t(*whole));
}

absl::StatusOr<float> ToFloat(absl::string_view field, const JsonValue& value) {
  if (const int64_t* i = std::get_if<int64_t>(&value)) return float(*i);
  if (const uint64_t* u = std::get_if<uint64_t>(&value)) return float(*u);
  if (const double* d = std::get_if<double>(&value)) return float(*d);
  return WrongType(field, "a number", Kind(value));
}

absl::StatusOr<bool> ToBool(absl::string_view field, const JsonValue& value) {
  const bool* flag = std::get_if<bool>(&value);
  if (flag == nullptr) return WrongType(field, "a boolean", Kind(value));
  return *flag;
}

absl::StatusOr<std::string> ToString(absl::string_view field, const JsonValue& value) {
  const std::string* text = std::get_if<std::string>(&value);
  if (text == nullptr) return WrongType(field, "a string", Kind(value));
  return *text;
}

}  // namespace sluice::router
