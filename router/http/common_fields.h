// The fields that /v1/completions and /v1/chat/completions have in common.
#pragma once

#include "router/http/api_request.h"
#include "router/http/field_reader.h"

namespace sluice::router {

using ApiFields = Fields<ApiRequest>;

// The common fields and `own`.
ApiFields WithCommonFields(ApiFields own);

// Setters for fields that other servers know and this one does not, so that nobody believes they took effect.
absl::Status OnlyFalse(ApiRequest&, const char* field, const JsonValue& value);
absl::Status OnlyTrue(ApiRequest&, const char* field, const JsonValue& value);
absl::Status AnyString(ApiRequest&, const char* field, const JsonValue& value);

template <bool ApiRequest::*kMember>
absl::Status SetBool(ApiRequest& out, const char* field, const JsonValue& value) {
  const absl::StatusOr<bool> flag = ToBool(field, value);
  if (flag.ok()) out.*kMember = *flag;
  return flag.status();
}

template <void (pb::SamplingParams::*kSet)(int32_t)>
absl::Status SetInt(ApiRequest& out, const char* field, const JsonValue& value) {
  const absl::StatusOr<int32_t> number = ToInt(field, value);
  if (number.ok()) (out.request.mutable_sampling()->*kSet)(*number);
  return number.status();
}

}  // namespace sluice::router
