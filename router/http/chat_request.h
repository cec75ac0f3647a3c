// The body of POST /v1/chat/completions: from JSON to an ApiRequest. Pure.
//
// The conversation itself stays JSON here; the chat template reads it, and refuses what it can't read by name. How JSON
// is read: field_reader.h. Defaults that differ from gRPC's: temperature 1.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "router/http/api_request.h"

namespace sluice::router {

// INVALID_ARGUMENT reads "field: what is wrong", or says where the JSON is broken.
absl::StatusOr<ApiRequest> ParseChat(std::string_view body);

// The names of all known fields.
std::vector<std::string> ChatFieldNames();

}  // namespace sluice::router
