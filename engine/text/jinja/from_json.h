// JSON as the values of a template.
//
// Promises: keys keep their order, and the last of equal ones counts; 1 is an int and 1.0 a float; texts are of the
// conversation. Refused: what is not JSON, ints of more than 64 bits, more levels than the limits allow.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "engine/text/jinja/environment.h"

namespace sluice::engine::jinja {

// Throws Error if the budget does not suffice; what is wrong with the JSON is a status.
absl::StatusOr<Value> FromJson(Environment& env, std::string_view json);

}  // namespace sluice::engine::jinja
