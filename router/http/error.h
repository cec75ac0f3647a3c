// From a status of ours to what an OpenAI client expects: an HTTP status code and {"error": {...}}. Pure.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace sluice::router {

// OK gives 200, what has no better code 500.
int HttpCode(const absl::Status& status);

// The body. A message "field: what is wrong" also names its field as `param`; fields of the gRPC API get their HTTP
// names.
std::string ErrorBody(const absl::Status& status);

// For what goes wrong before there is a request: wrong path, broken HTTP.
std::string ErrorBody(int http_code, absl::string_view message);

}  // namespace sluice::router
