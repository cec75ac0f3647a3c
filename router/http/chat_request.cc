#include "router/http/chat_request.h"

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "router/http/common_fields.h"

namespace sluice::router {
namespace {

using Json = nlohmann::json;

constexpr float kDefaultTemperature = 1.0f;
constexpr char kMessages[] = "messages";
constexpr char kTools[] = "tools";

// ---- what the template reads ----

absl::Status TakeArray(const char* field, std::string json, std::string* to) {
  if (json[0] != '[') return WrongType(field, "an array of objects", "an object");
  *to = std::move(json);
  return absl::OkStatus();
}

absl::Status SetMessages(ApiRequest& out, const char* field, std::string json) {
  return TakeArray(field, std::move(json), out.request.mutable_chat()->mutable_messages());
}

absl::Status SetTools(ApiRequest& out, const char* field, std::string json) {
  if (json == "[]") return BadField(field, "must not be empty; leave it out");
  return TakeArray(field, std::move(json), out.request.mutable_chat()->mutable_tools());
}

absl::Status SetTemplateArguments(ApiRequest& out, const char* field, std::string json) {
  if (json[0] != '{') return WrongType(field, "an object", "an array");
  out.request.mutable_chat()->set_template_arguments(std::move(json));
  return absl::OkStatus();
}

template <void (pb::ChatPrompt::*kSet)(bool)>
absl::Status SetChatBool(ApiRequest& out, const char* field, const JsonValue& value) {
  const absl::StatusOr<bool> flag = ToBool(field, value);
  if (flag.ok()) (out.request.mutable_chat()->*kSet)(*flag);
  return flag.status();
}

// ---- tools ----

constexpr char kWantedChoice[] = "\"auto\" or \"none\"";

absl::Status SetToolChoice(ApiRequest& out, const char* field, const JsonValue& value) {
  const absl::StatusOr<std::string> choice = ToString(field, value);
  if (!choice.ok()) return choice.status();
  if (*choice == "required") {
    return BadField(field, absl::StrCat("\"required\" is not supported yet; use ", kWantedChoice));
  }
  if (*choice != "auto" && *choice != "none") return BadField(field, absl::StrCat("must be ", kWantedChoice));
  out.use_tools = *choice == "auto";
  return absl::OkStatus();
}

absl::Status RefuseNamedTool(ApiRequest&, const char* field, std::string) {
  return BadField(field, absl::StrCat("a named function is not supported yet; use ", kWantedChoice));
}

absl::Status UseTools(ApiRequest&, const char* field, const JsonValue&) {
  return BadField(field, "is what OpenAI has replaced; use \"tools\" and \"tool_choice\"");
}
absl::Status UseToolsToo(ApiRequest& out, const char* field, std::string) {
  return UseTools(out, field, JsonValue());
}

// ---- the rest ----

absl::Status SetMaxTokens(ApiRequest& out, const char* field, const JsonValue& value) {
  const absl::StatusOr<int32_t> number = ToInt(field, value);
  if (!number.ok()) return number.status();
  pb::SamplingParams& sampling = *out.request.mutable_sampling();
  if (sampling.has_max_tokens() && sampling.max_tokens() != *number) {
    return BadField(field, "max_tokens and max_completion_tokens differ; give one of them");
  }
  sampling.set_max_tokens(*number);
  return absl::OkStatus();
}

absl::Status SetTopLogprobs(ApiRequest& out, const char* field, const JsonValue& value) {
  const absl::StatusOr<int32_t> number = ToInt(field, value);
  if (!number.ok()) return number.status();
  if (*number < 0) return BadField(field, absl::StrCat("must be >= 0, got ", *number));
  out.top_logprobs = *number;
  return absl::OkStatus();
}

absl::Status CheckResponseFormat(ApiRequest&, const char* field, std::string json) {
  const Json format = Json::parse(json, nullptr, false);
  const auto type = format.is_object() ? format.find("type") : format.end();
  if (!format.is_object() || type == format.end() || !type->is_string()) {
    return BadField(field, "must be an object with a \"type\"");
  }
  if (*type == "text") return absl::OkStatus();
  return BadField(field, "only {\"type\": \"text\"} is supported yet");
}

absl::Status CheckModality(ApiRequest&, const char* field, const JsonValue& value, int) {
  if (std::holds_alternative<OpenList>(value)) return absl::OkStatus();
  const absl::StatusOr<std::string> modality = ToString(field, value);
  if (!modality.ok()) return modality.status();
  return *modality == "text" ? absl::OkStatus() : BadField(field, "only \"text\" is supported");
}

const ApiFields& Table() {
  static const ApiFields fields = WithCommonFields({
      {.name = kMessages, .raw = SetMessages, .wanted = "an array of objects"},
      {.name = kTools, .raw = SetTools, .wanted = "an array of objects"},
      {.name = "tool_choice", .set = SetToolChoice, .raw = RefuseNamedTool, .wanted = kWantedChoice},
      {.name = "parallel_tool_calls", .set = OnlyTrue},
      {.name = "functions", .set = UseTools, .raw = UseToolsToo},
      {.name = "function_call", .set = UseTools, .raw = UseToolsToo},
      {.name = "add_generation_prompt", .set = SetChatBool<&pb::ChatPrompt::set_add_generation_prompt>},
      {.name = "continue_final_message", .set = SetChatBool<&pb::ChatPrompt::set_continue_final_message>},
      {.name = "chat_template_kwargs", .raw = SetTemplateArguments, .wanted = "an object"},
      {.name = "max_tokens", .set = SetMaxTokens},
      {.name = "max_completion_tokens", .set = SetMaxTokens},
      {.name = "logprobs", .set = SetBool<&ApiRequest::logprobs>},
      {.name = "top_logprobs", .set = SetTopLogprobs},
      {.name = "response_format", .raw = CheckResponseFormat, .wanted = "an object"},
      {.name = "modalities", .add = CheckModality, .wanted = "an array of strings"},
      {.name = "echo", .set = OnlyFalse},
  });
  return fields;
}

}  // namespace

absl::StatusOr<ApiRequest> ParseChat(std::string_view body) {
  ApiRequest out;
  out.use_tools = true;  // "auto"
  if (absl::Status read = FieldReader<ApiRequest>::Read(Table(), body, out); !read.ok()) return read;
  pb::SamplingParams& sampling = *out.request.mutable_sampling();
  pb::ChatPrompt& chat = *out.request.mutable_chat();
  if (chat.messages().empty()) return BadField(kMessages, "is missing; give an array of objects");
  if (out.top_logprobs > 0 && !out.logprobs) return BadField("top_logprobs", "needs \"logprobs\": true");
  if (out.stream && sampling.has_prompt_logprobs()) {
    return BadField("prompt_logprobs", "is not available in a stream; leave out \"stream\" or this field");
  }
  if (chat.continue_final_message() && chat.has_add_generation_prompt() && chat.add_generation_prompt()) {
    return BadField("continue_final_message", "can't be together with add_generation_prompt");
  }
  out.prompt_logprobs = sampling.has_prompt_logprobs();
  if (!out.use_tools) chat.clear_tools();
  out.use_tools = !chat.tools().empty();
  if (out.logprobs) sampling.set_logprobs(out.top_logprobs);
  if (!sampling.has_temperature()) sampling.set_temperature(kDefaultTemperature);
  return out;
}

std::vector<std::string> ChatFieldNames() {
  std::vector<std::string> names;
  for (const Field<ApiRequest>& field : Table()) names.emplace_back(field.name);
  return names;
}

}  // namespace sluice::router
