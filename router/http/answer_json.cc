#include "router/http/answer_json.h"

#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "engine/text/utf8.h"
#include "router/http/error.h"

namespace sluice::router {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kLeastLogprob = -9999;  // JSON has no -inf

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

bool IsUtf8(std::string_view bytes) {
  while (!bytes.empty()) {
    const engine::Utf8Step step = engine::NextUtf8(bytes);
    if (step.kind != engine::Utf8Kind::kCharacter) return false;
    bytes.remove_prefix(size_t(step.length));
  }
  return true;
}

}  // namespace

std::string Quoted(absl::string_view text) {
  return Dump(Json(std::string(text)));
}

std::string TokenText(const std::string& bytes) {
  if (IsUtf8(bytes)) return bytes;
  std::string text = "bytes:";
  for (const char c : bytes) absl::StrAppendFormat(&text, "\\x%02x", static_cast<unsigned char>(c));
  return text;
}

std::string LogprobJson(float logprob) {
  return Dump(std::max(double(logprob), kLeastLogprob));
}

void AppendElement(std::string& elements, absl::string_view element) {
  absl::StrAppend(&elements, elements.empty() ? "" : ",", element);
}

const char* FinishJson(pb::FinishReason reason) {
  switch (reason) {
    case pb::FINISH_REASON_STOP:
      return "\"stop\"";
    case pb::FINISH_REASON_LENGTH:
      return "\"length\"";
    default:
      return "null";
  }
}

std::string UsageJson(const pb::Usage& usage) {
  return Dump({{"prompt_tokens", usage.prompt_tokens()},
               {"completion_tokens", usage.completion_tokens()},
               {"total_tokens", usage.prompt_tokens() + usage.completion_tokens()},
               {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens()}}}});
}

void AddUsage(pb::Usage& sum, const pb::Usage& usage) {
  sum.set_prompt_tokens(sum.prompt_tokens() + usage.prompt_tokens());
  sum.set_completion_tokens(sum.completion_tokens() + usage.completion_tokens());
  sum.set_cached_tokens(sum.cached_tokens() + usage.cached_tokens());
}

void AddSoFar(pb::Usage& sum, const pb::GenerateResponse& response) {
  sum.set_prompt_tokens(sum.prompt_tokens() + response.prompt().token_ids_size());
  for (const pb::ChoiceDelta& delta : response.choices()) {
    sum.set_completion_tokens(sum.completion_tokens() + delta.token_ids_size());
  }
}

std::string TimingJson(const pb::Timing& timing) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  std::string json;
  if (!google::protobuf::util::MessageToJsonString(timing, &json, options).ok()) return "null";
  // 64-bit numbers are strings in protobuf's JSON; these are far below 2^53.
  Json value = Json::parse(json, nullptr, false);
  const auto number = [](Json& object, const char* name) {
    if (object.contains(name) && object[name].is_string()) object[name] = std::stoll(object[name].get<std::string>());
  };
  number(value, "transfer_bytes");
  for (Json& event : value["timeline"]) number(event, "amount");
  return Dump(value);
}

std::string OpenObject(const AnswerNames& names, const char* object) {
  const std::string json =
      Dump({{"id", names.id}, {"object", object}, {"created", names.created}, {"model", names.model}});
  return json.substr(0, json.size() - 1);
}

std::string SseEvent(absl::string_view json) {
  return absl::StrCat("data: ", json, "\n\n");
}

std::string SseError(const absl::Status& status) {
  return SseEvent(ErrorBody(status));
}

void AppendPromptLogprobs(std::string& elements, const pb::PromptInfo& prompt) {
  if (prompt.token_ids_size() > 0) elements = "null";
  for (const pb::TokenLogprobs& token : prompt.logprobs()) {
    std::string entries;
    const auto add = [&entries](const pb::TokenLogprob& entry, const std::string& rank) {
      AppendElement(entries,
                    absl::StrCat("\"", entry.token_id(), "\":{\"logprob\":", LogprobJson(entry.logprob()),
                                 ",\"rank\":", rank, ",\"decoded_token\":", Quoted(TokenText(entry.token())), "}"));
    };
    bool found = false;
    for (int i = 0; i < token.top_size(); ++i) {
      found |= token.top(i).token_id() == token.sampled().token_id();
      add(token.top(i), absl::StrCat(i + 1));
    }
    if (!found) add(token.sampled(), "null");
    absl::StrAppend(&elements, ",{", entries, "}");
  }
}

}  // namespace sluice::router
