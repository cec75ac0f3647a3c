#include "cli/generate_options.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "nlohmann/json.hpp"

namespace sluice::cli {

absl::StatusOr<std::vector<int32_t>> ParseTokenIds(absl::string_view list, absl::string_view flag) {
  std::vector<int32_t> ids;
  for (absl::string_view piece : absl::StrSplit(list, ',')) {
    int32_t id = 0;
    if (!absl::SimpleAtoi(absl::StripAsciiWhitespace(piece), &id)) {
      return absl::InvalidArgumentError(absl::StrCat(flag, ": \"", piece, "\" is no token id"));
    }
    ids.push_back(id);
  }
  return ids;
}

absl::StatusOr<std::vector<std::pair<int32_t, float>>> ParseBiases(absl::string_view list) {
  std::vector<std::pair<int32_t, float>> biases;
  for (absl::string_view piece : absl::StrSplit(list, ',')) {
    const std::vector<absl::string_view> parts = absl::StrSplit(piece, ':');
    int32_t id = 0;
    float bias = 0.0f;
    if (parts.size() != 2 || !absl::SimpleAtoi(parts[0], &id) || !absl::SimpleAtof(parts[1], &bias)) {
      return absl::InvalidArgumentError(absl::StrCat("--logit-bias: \"", piece, "\" is not ID:BIAS, such as 42:-100"));
    }
    biases.emplace_back(id, bias);
  }
  return biases;
}

namespace {

absl::Status SetLists(const GenerateOptions& options, v1::SamplingParams& sampling) {
  for (const std::string& list : options.logit_bias) {
    const auto biases = ParseBiases(list);
    if (!biases.ok()) return biases.status();
    for (const auto& [id, bias] : *biases) (*sampling.mutable_logit_bias())[id] = bias;
  }
  if (!options.stop_token_ids.empty()) {
    const auto ids = ParseTokenIds(options.stop_token_ids, "--stop-token-ids");
    if (!ids.ok()) return ids.status();
    sampling.mutable_stop_token_ids()->Assign(ids->begin(), ids->end());
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<v1::GenerateRequest> MakeRequest(const GenerateOptions& options) {
  v1::GenerateRequest request;
  if (options.token_ids.empty() && options.raw) {
    request.set_text(options.prompt);
  } else if (options.token_ids.empty()) {
    const nlohmann::json messages = {{{"role", "user"}, {"content", options.prompt}}};
    request.mutable_chat()->set_messages(messages.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  } else {
    absl::StatusOr<std::vector<int32_t>> ids = ParseTokenIds(options.token_ids);
    if (!ids.ok()) return ids.status();
    request.mutable_token_ids()->mutable_ids()->Assign(ids->begin(), ids->end());
  }
  v1::SamplingParams* sampling = request.mutable_sampling();
  if (options.temperature) sampling->set_temperature(*options.temperature);
  if (options.top_p) sampling->set_top_p(*options.top_p);
  if (options.top_k) sampling->set_top_k(*options.top_k);
  if (options.min_p) sampling->set_min_p(*options.min_p);
  if (options.repetition_penalty) sampling->set_repetition_penalty(*options.repetition_penalty);
  if (options.presence_penalty) sampling->set_presence_penalty(*options.presence_penalty);
  if (options.frequency_penalty) sampling->set_frequency_penalty(*options.frequency_penalty);
  if (absl::Status status = SetLists(options, *sampling); !status.ok()) return status;
  if (options.min_tokens) sampling->set_min_tokens(*options.min_tokens);
  if (options.prompt_logprobs) sampling->set_prompt_logprobs(*options.prompt_logprobs);
  if (options.n) sampling->set_n(*options.n);
  if (options.max_tokens) sampling->set_max_tokens(*options.max_tokens);
  if (options.seed) sampling->set_seed(*options.seed);
  for (const std::string& stop : options.stop) sampling->add_stop(stop);
  if (options.logprobs) {
    sampling->set_logprobs(*options.logprobs);
  } else if (options.json) {
    sampling->set_logprobs(0);
  }
  if (options.ignore_eos) sampling->set_ignore_eos(true);
  if (options.timeout_s) {
    const double ms = std::ceil(*options.timeout_s * 1000);
    if (!(ms > 0 && ms <= std::numeric_limits<int32_t>::max())) {
      return absl::InvalidArgumentError("--timeout: a number of seconds above 0 is needed");
    }
    request.set_timeout_ms(static_cast<int32_t>(ms));
  }
  return request;
}

bool HasNoTemplate(absl::string_view refusal) {
  return absl::StartsWith(refusal, "messages: ") && absl::StrContains(refusal, "has no chat template");
}

}  // namespace sluice::cli
