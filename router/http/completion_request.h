// The body of POST /v1/completions: from JSON to an ApiRequest. Pure.
//
// Ranges are Validate's (validate.h), for all transports; how JSON is read: field_reader.h. Defaults that differ from
// gRPC's are set here: temperature 1, max_tokens 16.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "router/http/api_request.h"

namespace sluice::router {

inline constexpr size_t kMaxPrompts = 128;  // of one request

// INVALID_ARGUMENT reads "field: what is wrong", or says where the JSON is broken.
absl::StatusOr<ApiRequest> ParseCompletion(std::string_view body);

// The names of all known fields.
std::vector<std::string> CompletionFieldNames();

}  // namespace sluice::router
