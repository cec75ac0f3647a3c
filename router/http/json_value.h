// The scalars of a JSON body, and how they become fields: the conversions and the words of their refusals. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <variant>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace sluice::router {

struct OpenList {};  // an array inside a field's array begins
using JsonValue = std::variant<std::monostate, bool, int64_t, uint64_t, double, std::string, OpenList>;

// "a string", "null", ...
const char* Kind(const JsonValue& value);

// "field: what"
absl::Status BadField(absl::string_view field, absl::string_view what);
absl::Status WrongType(absl::string_view field, absl::string_view wanted, absl::string_view got);

// Whole numbers may be spelled as 16.0; 64 bits of either sign keep their bits.
absl::StatusOr<uint64_t> ToWhole(absl::string_view field, const JsonValue& value, int64_t min, uint64_t max);
absl::StatusOr<int32_t> ToInt(absl::string_view field, const JsonValue& value);
absl::StatusOr<float> ToFloat(absl::string_view field, const JsonValue& value);
absl::StatusOr<bool> ToBool(absl::string_view field, const JsonValue& value);
absl::StatusOr<std::string> ToString(absl::string_view field, const JsonValue& value);

}  // namespace sluice::router
