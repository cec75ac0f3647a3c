// Small bodies: the model, tokens, text. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "proto/serving.pb.h"
#include "router/validate.h"

namespace sluice::router {

// GET /v1/models, and /v1/models/NAME; NOT_FOUND for another name.
std::string ModelsBody(const ServedModel& model, int64_t created);
absl::StatusOr<std::string> ModelBody(const ServedModel& model, std::string_view name, int64_t created);

std::string VersionBody(const std::string& version);

// POST /tokenize and /detokenize, as vLLM's server has them.
struct TokenizeCall {
  pb::TokenizeRequest request;
  bool strings = false;  // return_token_strs
};
absl::StatusOr<TokenizeCall> ParseTokenize(std::string_view body);
std::string TokenizeBody(const TokenizeCall& call, const pb::TokenizeResponse& response);
absl::StatusOr<pb::DetokenizeRequest> ParseDetokenize(std::string_view body);
std::string DetokenizeBody(const pb::DetokenizeResponse& response);

}  // namespace sluice::router
