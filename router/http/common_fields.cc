#include "router/http/common_fields.h"

#include <limits>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace sluice::router {
namespace {

constexpr size_t kShownBytes = 40;  // of a client's text in a message

template <void (pb::SamplingParams::*kSet)(float)>
absl::Status SetFloat(ApiRequest& out, const char* field, const JsonValue& value) {
  const absl::StatusOr<float> number = ToFloat(field, value);
  if (number.ok()) (out.request.mutable_sampling()->*kSet)(*number);
  return number.status();
}

// A number of the request itself.
template <void (pb::GenerateRequest::*kSet)(int32_t)>
absl::Status SetNumber(ApiRequest& out, const char* field, const JsonValue& value) {
  const absl::StatusOr<int32_t> number = ToInt(field, value);
  if (number.ok()) (out.request.*kSet)(*number);
  return number.status();
}

absl::Status SetIgnoreEos(ApiRequest& out, const char* field, const JsonValue& value) {
  const absl::StatusOr<bool> flag = ToBool(field, value);
  if (flag.ok()) out.request.mutable_sampling()->set_ignore_eos(*flag);
  return flag.status();
}

absl::Status SetSeed(ApiRequest& out, const char* field, const JsonValue& value) {
  const auto seed = ToWhole(field, value, std::numeric_limits<int64_t>::min(), std::numeric_limits<uint64_t>::max());
  if (seed.ok()) out.request.mutable_sampling()->set_seed(*seed);
  return seed.status();
}

absl::Status SetModel(ApiRequest& out, const char* field, const JsonValue& value) {
  absl::StatusOr<std::string> name = ToString(field, value);
  if (!name.ok()) return name.status();
  if (name->empty()) return BadField(field, "must not be empty");
  out.request.set_model(*std::move(name));
  return absl::OkStatus();
}

absl::Status SetCacheSalt(ApiRequest& out, const char* field, const JsonValue& value) {
  absl::StatusOr<std::string> salt = ToString(field, value);
  if (salt.ok()) out.request.set_cache_salt(*std::move(salt));
  return salt.status();
}

absl::Status SetStop(ApiRequest& out, const char* field, const JsonValue& value) {
  const std::string* stop = std::get_if<std::string>(&value);
  if (stop == nullptr) return WrongType(field, "a string or an array of strings", Kind(value));
  out.request.mutable_sampling()->add_stop(*stop);
  return absl::OkStatus();
}

absl::Status AddStop(ApiRequest& out, const char* field, const JsonValue& value, int) {
  return std::holds_alternative<OpenList>(value) ? absl::OkStatus() : SetStop(out, field, value);
}

absl::Status AddStopId(ApiRequest& out, const char* field, const JsonValue& value, int) {
  if (std::holds_alternative<OpenList>(value)) return absl::OkStatus();
  const absl::StatusOr<int32_t> id = ToInt(field, value);
  if (id.ok()) out.request.mutable_sampling()->add_stop_token_ids(*id);
  return id.status();
}

absl::Status AddBias(ApiRequest& out, const char* field, const std::string& key, const JsonValue& value) {
  int32_t id = 0;
  if (!absl::SimpleAtoi(key, &id)) {
    return BadField(field, absl::StrCat("keys must be token ids, got \"", key.substr(0, kShownBytes), "\""));
  }
  const absl::StatusOr<float> bias = ToFloat(field, value);
  if (!bias.ok()) return bias.status();
  const auto added = out.request.mutable_sampling()->mutable_logit_bias()->insert({id, *bias});
  return added.second ? absl::OkStatus() : BadField(field, absl::StrCat("token ", id, " is given twice"));
}

absl::Status SetStreamOption(ApiRequest& out, const char* field, const std::string& key, const JsonValue& value) {
  if (std::holds_alternative<std::monostate>(value)) return absl::OkStatus();
  const std::string name = absl::StrCat(field, ".", key);
  if (key == "include_usage") return SetBool<&ApiRequest::include_usage>(out, name.c_str(), value);
  if (key == "continuous_usage_stats") return SetBool<&ApiRequest::continuous_usage>(out, name.c_str(), value);
  return absl::OkStatus();
}

ApiFields CommonFields() {
  return {
      {.name = "model", .set = SetModel, .wanted = "a string"},
      {.name = "min_tokens", .set = SetInt<&pb::SamplingParams::set_min_tokens>},
      {.name = "temperature", .set = SetFloat<&pb::SamplingParams::set_temperature>},
      {.name = "top_p", .set = SetFloat<&pb::SamplingParams::set_top_p>},
      {.name = "top_k", .set = SetInt<&pb::SamplingParams::set_top_k>},
      {.name = "min_p", .set = SetFloat<&pb::SamplingParams::set_min_p>},
      {.name = "seed", .set = SetSeed},
      {.name = "stop", .set = SetStop, .add = AddStop, .wanted = "a string or an array of strings"},
      {.name = "stop_token_ids", .add = AddStopId, .wanted = "an array of token ids"},
      {.name = "ignore_eos", .set = SetIgnoreEos},
      {.name = "prompt_logprobs", .set = SetInt<&pb::SamplingParams::set_prompt_logprobs>},
      {.name = "n", .set = SetInt<&pb::SamplingParams::set_n>},
      {.name = "presence_penalty", .set = SetFloat<&pb::SamplingParams::set_presence_penalty>},
      {.name = "frequency_penalty", .set = SetFloat<&pb::SamplingParams::set_frequency_penalty>},
      {.name = "repetition_penalty", .set = SetFloat<&pb::SamplingParams::set_repetition_penalty>},
      {.name = "logit_bias", .member = AddBias, .wanted = "an object", .plain = "a number"},
      {.name = "stream", .set = SetBool<&ApiRequest::stream>},
      {.name = "stream_options", .member = SetStreamOption, .wanted = "an object"},
      {.name = "skip_special_tokens", .set = OnlyTrue},
      {.name = "user", .set = AnyString, .wanted = "a string"},
      {.name = "cache_salt", .set = SetCacheSalt, .wanted = "a string"},
      {.name = "priority", .set = SetNumber<&pb::GenerateRequest::set_priority>},
      {.name = "timeout_ms", .set = SetNumber<&pb::GenerateRequest::set_timeout_ms>},
      {.name = "ttft_slo_ms", .set = SetNumber<&pb::GenerateRequest::set_ttft_slo_ms>},
      {.name = "tpot_slo_ms", .set = SetNumber<&pb::GenerateRequest::set_tpot_slo_ms>},
      {.name = "timing", .set = SetBool<&ApiRequest::timing>},
  };
}

}  // namespace

absl::Status OnlyFalse(ApiRequest&, const char* field, const JsonValue& value) {
  const absl::StatusOr<bool> flag = ToBool(field, value);
  if (!flag.ok()) return flag.status();
  return *flag ? BadField(field, "is not supported yet; only false is allowed") : absl::OkStatus();
}

absl::Status OnlyTrue(ApiRequest&, const char* field, const JsonValue& value) {
  const absl::StatusOr<bool> flag = ToBool(field, value);
  if (!flag.ok()) return flag.status();
  return *flag ? absl::OkStatus() : BadField(field, "is not supported yet; only true is allowed");
}

absl::Status AnyString(ApiRequest&, const char* field, const JsonValue& value) {
  return ToString(field, value).status();
}

ApiFields WithCommonFields(ApiFields own) {
  ApiFields fields = CommonFields();
  for (Field<ApiRequest>& field : own) fields.push_back(std::move(field));
  return fields;
}

}  // namespace sluice::router
