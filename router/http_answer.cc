#include "router/http_answer.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "engine/text/utf8.h"
#include "router/http_error.h"

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

// A token as text; one that is no text by itself, such as half a character, as "bytes:\xe2\x80".
std::string TokenText(const std::string& bytes) {
  if (IsUtf8(bytes)) return bytes;
  std::string text = "bytes:";
  for (const char c : bytes) absl::StrAppendFormat(&text, "\\x%02x", static_cast<unsigned char>(c));
  return text;
}

int64_t CharactersBegun(std::string_view bytes) {
  return std::count_if(bytes.begin(), bytes.end(), [](char c) { return (c & 0xC0) != 0x80; });
}

std::string Number(float logprob) {
  return Dump(std::max(double(logprob), kLeastLogprob));
}

void Append(std::string& array, absl::string_view element) {
  absl::StrAppend(&array, array.empty() ? "" : ",", element);
}

std::string UsageJson(const pb::Usage& usage) {
  return Dump({{"prompt_tokens", usage.prompt_tokens()},
               {"completion_tokens", usage.completion_tokens()},
               {"total_tokens", usage.prompt_tokens() + usage.completion_tokens()},
               {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens()}}}});
}

std::string Head(const CompletionAnswer::Names& names) {
  const std::string object =
      Dump({{"id", names.id}, {"object", "text_completion"}, {"created", names.created}, {"model", names.model}});
  return object.substr(0, object.size() - 1);  // it goes on with the choices
}

const char* Finish(pb::FinishReason reason) {
  switch (reason) {
    case pb::FINISH_REASON_STOP:
      return "\"stop\"";
    case pb::FINISH_REASON_LENGTH:
      return "\"length\"";
    default:
      return "null";
  }
}

}  // namespace

void CompletionAnswer::Logprobs::Add(const pb::TokenLogprobs& token, int64_t offset) {
  const std::string sampled = TokenText(token.sampled().token());
  Append(tokens, Dump(sampled));
  Append(token_logprobs, Number(token.sampled().logprob()));
  Append(text_offset, absl::StrCat(offset));
  // The sampled token is always among them, so there may be one more than was asked for.
  std::string top;
  bool found = false;
  for (const pb::TokenLogprob& entry : token.top()) {
    found |= entry.token_id() == token.sampled().token_id();
    Append(top, absl::StrCat(Dump(TokenText(entry.token())), ":", Number(entry.logprob())));
  }
  if (!found) Append(top, absl::StrCat(Dump(sampled), ":", Number(token.sampled().logprob())));
  Append(top_logprobs, absl::StrCat("{", top, "}"));
}

std::string CompletionAnswer::Logprobs::Json() const {
  if (tokens.empty()) return "null";
  return absl::StrCat("{\"text_offset\":[", text_offset, "],\"token_logprobs\":[", token_logprobs, "],\"tokens\":[",
                      tokens, "],\"top_logprobs\":[", top_logprobs, "]}");
}

CompletionAnswer::CompletionAnswer(const CompletionRequest& request, const Names& names)
    : stream_(request.stream),
      include_usage_(request.include_usage),
      has_prompt_logprobs_(request.request.sampling().has_prompt_logprobs()),
      head_(Head(names)) {}

// As vLLM's server spells it: one element a prompt token, null for the first, which nothing predicts; the others are
// objects by token id. The prompt's own token is among them, without a rank where it is none of the best.
void CompletionAnswer::CollectPrompt(const pb::PromptInfo& prompt) {
  if (!has_prompt_logprobs_) return;
  if (prompt.token_ids_size() > 0) prompt_logprobs_ = "null";
  for (const pb::TokenLogprobs& token : prompt.logprobs()) {
    std::string entries;
    const auto add = [&entries](const pb::TokenLogprob& entry, const std::string& rank) {
      Append(entries, absl::StrCat("\"", entry.token_id(), "\":{\"logprob\":", Number(entry.logprob()),
                                   ",\"rank\":", rank, ",\"decoded_token\":", Dump(TokenText(entry.token())), "}"));
    };
    bool found = false;
    for (int i = 0; i < token.top_size(); ++i) {
      found |= token.top(i).token_id() == token.sampled().token_id();
      add(token.top(i), absl::StrCat(i + 1));
    }
    if (!found) add(token.sampled(), "null");
    absl::StrAppend(&prompt_logprobs_, ",{", entries, "}");
  }
}

void CompletionAnswer::Collect(const pb::ChoiceDelta& delta) {
  const size_t index = size_t(std::max(0, delta.index()));
  if (index >= choices_.size()) choices_.resize(index + 1);
  Choice& choice = choices_[index];
  choice.text += delta.text();
  choice.reason = delta.finish_reason();
  for (const pb::TokenLogprobs& token : delta.logprobs()) {
    choice.logprobs.Add(token, choice.characters);
    choice.characters += CharactersBegun(token.sampled().token());
  }
}

std::string CompletionAnswer::TakeChoice(size_t index) {
  Choice& choice = choices_[index];
  const std::string text = std::exchange(choice.text, "");
  const Logprobs logprobs = std::exchange(choice.logprobs, {});
  return absl::StrCat("{\"text\":", Dump(text), ",\"index\":", index, ",\"logprobs\":", logprobs.Json(),
                      ",\"finish_reason\":", Finish(choice.reason),
                      has_prompt_logprobs_ ? absl::StrCat(",\"prompt_logprobs\":[", prompt_logprobs_, "]") : "", "}");
}

std::string CompletionAnswer::Add(const pb::GenerateResponse& response) {
  if (response.has_prompt()) CollectPrompt(response.prompt());
  for (const pb::ChoiceDelta& delta : response.choices()) Collect(delta);
  const bool last = response.has_usage();
  if (last && choices_.empty()) choices_.resize(1);
  if (!stream_) {
    if (!last) return "";
    std::string choices;
    for (size_t i = 0; i < choices_.size(); ++i) Append(choices, TakeChoice(i));
    return absl::StrCat(head_, ",\"choices\":[", choices, "],\"usage\":", UsageJson(response.usage()), "}");
  }
  std::string events;
  for (size_t i = 0; i < choices_.size(); ++i) {
    if (!last && !choices_[i].HasNews()) continue;
    absl::StrAppend(&events, "data: ", head_, ",\"choices\":[", TakeChoice(i), "]",
                    include_usage_ ? ",\"usage\":null" : "", "}\n\n");
  }
  if (last && include_usage_) {
    absl::StrAppend(&events, "data: ", head_, ",\"choices\":[],\"usage\":", UsageJson(response.usage()), "}\n\n");
  }
  if (last) events += "data: [DONE]\n\n";
  return events;
}

std::string CompletionAnswer::ErrorEvent(const absl::Status& status) {
  return absl::StrCat("data: ", ErrorBody(status), "\n\n");
}

std::string ModelsBody(const std::string& name, const std::string& root, int context_length, int64_t created) {
  const Json model = {{"id", name},
                      {"object", "model"},
                      {"created", created},
                      {"owned_by", "sluice"},
                      {"root", root},
                      {"parent", nullptr},
                      {"max_model_len", context_length}};
  return Dump({{"object", "list"}, {"data", Json::array({model})}});
}

}  // namespace sluice::router
