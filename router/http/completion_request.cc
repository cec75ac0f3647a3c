#include "router/http/completion_request.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "router/http/common_fields.h"

namespace sluice::router {
namespace {

using Ids = std::vector<int32_t>;

constexpr float kDefaultTemperature = 1.0f;
constexpr int kDefaultMaxTokens = 16;
constexpr char kPrompt[] = "prompt";
constexpr char kWantedPrompt[] = "a string, an array of token ids, or an array of either";

absl::Status SetPrompt(ApiRequest& out, const char* field, const JsonValue& value) {
  const std::string* text = std::get_if<std::string>(&value);
  if (text == nullptr) return WrongType(field, kWantedPrompt, Kind(value));
  out.prompts.emplace_back(*text);
  return absl::OkStatus();
}

absl::Status Mixed(const char* field) {
  return WrongType(field, kWantedPrompt, "a mix");
}

absl::Status AddId(Prompt& prompt, const char* field, const JsonValue& value) {
  if (std::holds_alternative<std::string>(value)) return Mixed(field);
  const absl::StatusOr<int32_t> id = ToInt(field, value);
  if (id.ok()) std::get<Ids>(prompt).push_back(*id);
  return id.status();
}

absl::Status AddNew(ApiRequest& out, const char* field, Prompt prompt) {
  if (out.prompts.size() == kMaxPrompts) {
    return BadField(field, absl::StrCat("at most ", kMaxPrompts, " prompts are allowed"));
  }
  out.prompts.push_back(std::move(prompt));
  return absl::OkStatus();
}

// The first element decides what the others must be: texts, ids of one prompt, or lists of ids.
absl::Status AddPrompt(ApiRequest& out, const char* field, const JsonValue& value, int list) {
  const bool opens = std::holds_alternative<OpenList>(value);
  if (opens && list == kNoList) return absl::OkStatus();  // the field's own array
  if (opens) return list == int(out.prompts.size()) ? AddNew(out, field, Ids()) : Mixed(field);
  if (list >= 0) return AddId(out.prompts.back(), field, value);
  if (list == kAfterLists) return Mixed(field);
  const bool ids = !out.prompts.empty() && std::holds_alternative<Ids>(out.prompts[0]);
  if (const std::string* text = std::get_if<std::string>(&value)) {
    return ids ? Mixed(field) : AddNew(out, field, *text);
  }
  if (!ids && !out.prompts.empty()) return Mixed(field);
  if (!ids) out.prompts.emplace_back(Ids());
  return AddId(out.prompts[0], field, value);
}

absl::Status SetBestOf(ApiRequest&, const char* field, const JsonValue& value) {
  const absl::StatusOr<int32_t> number = ToInt(field, value);
  if (!number.ok()) return number.status();
  return *number == 1 ? absl::OkStatus() : BadField(field, "is not supported yet; only 1 is allowed");
}

absl::Status SetSuffix(ApiRequest&, const char* field, const JsonValue& value) {
  const absl::StatusOr<std::string> text = ToString(field, value);
  if (!text.ok()) return text.status();
  return text->empty() ? absl::OkStatus() : BadField(field, "is not supported yet; leave it out");
}

const ApiFields& Table() {
  static const ApiFields fields = WithCommonFields({
      {.name = kPrompt, .set = SetPrompt, .add = AddPrompt, .wanted = kWantedPrompt, .lists = true},
      {.name = "max_tokens", .set = SetInt<&pb::SamplingParams::set_max_tokens>},
      {.name = "logprobs", .set = SetInt<&pb::SamplingParams::set_logprobs>},
      {.name = "best_of", .set = SetBestOf},
      {.name = "echo", .set = SetBool<&ApiRequest::echo>},
      {.name = "suffix", .set = SetSuffix, .wanted = "a string"},
  });
  return fields;
}

// The prompt's log-probabilities are those of `logprobs`; a request for no answer computes one token that nobody sees.
absl::Status FinishEcho(ApiRequest& out) {
  pb::SamplingParams& sampling = *out.request.mutable_sampling();
  if (sampling.has_logprobs() && !sampling.has_prompt_logprobs()) {
    if (out.stream) return BadField("echo", "with logprobs is not available in a stream; leave out \"stream\"");
    sampling.set_prompt_logprobs(sampling.logprobs());
  }
  if (sampling.max_tokens() == 0) {
    out.no_answer = true;
    sampling.set_max_tokens(1);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ApiRequest> ParseCompletion(std::string_view body) {
  ApiRequest out;
  if (absl::Status read = FieldReader<ApiRequest>::Read(Table(), body, out); !read.ok()) return read;
  pb::SamplingParams& sampling = *out.request.mutable_sampling();
  if (out.stream && sampling.has_prompt_logprobs()) {
    return BadField("prompt_logprobs", "is not available in a stream; leave out \"stream\" or this field");
  }
  if (!sampling.has_temperature()) sampling.set_temperature(kDefaultTemperature);
  if (!sampling.has_max_tokens()) sampling.set_max_tokens(kDefaultMaxTokens);
  out.prompt_logprobs = sampling.has_prompt_logprobs();
  if (out.echo) {
    if (absl::Status echo = FinishEcho(out); !echo.ok()) return echo;
  }
  if (out.prompts.size() > 1) return out;
  if (out.prompts.empty()) return BadField(kPrompt, absl::StrCat("is missing or empty; give ", kWantedPrompt));
  out.request = out.Request(0);
  out.prompts.clear();
  return out;
}

std::vector<std::string> CompletionFieldNames() {
  std::vector<std::string> names;
  for (const Field<ApiRequest>& field : Table()) names.emplace_back(field.name);
  return names;
}

}  // namespace sluice::router
