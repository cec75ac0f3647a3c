// The body of POST /v1/completions: from JSON to a GenerateRequest. Pure.
//
// Promises: a known field of the wrong type is refused by name; `null` means absent; unknown fields are ignored; memory
// stays proportional to what known fields hold, however the JSON is nested. Ranges are Validate's (validate.h), for
// both transports. Defaults that differ from gRPC's are set here: temperature 1, max_tokens 16.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "proto/serving.pb.h"

namespace sluice::router {

namespace pb = ::sluice::v1;

struct CompletionRequest {
  pb::GenerateRequest request;
  bool stream = false;
  bool include_usage = false;  // stream_options.include_usage
};

// INVALID_ARGUMENT reads "field: what is wrong", or says where the JSON is broken.
absl::StatusOr<CompletionRequest> ParseCompletion(std::string_view body);

}  // namespace sluice::router
