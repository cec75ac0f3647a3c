// From what a client wrote to token ids: text, or a conversation through the model's chat template. Pure.
//
// Refusals are INVALID_ARGUMENT and read "field: what is wrong". What can't fit the context is refused before any work.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/serving.pb.h"
#include "router/validate.h"

namespace sluice::router {

// Names of special tokens in the text are those tokens.
absl::StatusOr<std::vector<int32_t>> TextTokens(const std::string& text, const ServedModel& model,
                                                bool add_special = true);

// now: for templates that write a date.
absl::StatusOr<std::vector<int32_t>> ChatTokens(const pb::ChatPrompt& chat, const ServedModel& model, absl::Time now);

absl::StatusOr<pb::TokenizeResponse> Tokenize(const pb::TokenizeRequest& request, const ServedModel& model,
                                              absl::Time now);
absl::StatusOr<pb::DetokenizeResponse> Detokenize(const pb::DetokenizeRequest& request, const ServedModel& model);

}  // namespace sluice::router
