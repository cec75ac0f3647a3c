// The flags of `sluice generate` and the request they make. Pure.
//
// A flag that was not given leaves its field absent, so that the router's default holds; bad values are the router's to
// refuse, by name, as for every other client.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/serving.pb.h"

namespace sluice::cli {

struct GenerateOptions {
  std::string router = "localhost:50051";
  std::string prompt;  // "-": the caller reads standard input and puts it here
  std::string token_ids;
  std::optional<float> temperature;
  std::optional<float> top_p;
  std::optional<int32_t> top_k;
  std::optional<float> min_p;
  std::optional<float> repetition_penalty;
  std::optional<float> presence_penalty;
  std::optional<float> frequency_penalty;
  std::vector<std::string> logit_bias;  // each "id:bias", or several with commas
  std::optional<int32_t> min_tokens;
  std::string stop_token_ids;
  std::optional<int32_t> prompt_logprobs;
  std::optional<int32_t> n;
  std::optional<int32_t> max_tokens = 128;  // absent: the router's default
  std::optional<uint64_t> seed;
  std::vector<std::string> stop;
  std::optional<int32_t> logprobs;
  bool ignore_eos = false;
  bool raw = false;
  bool json = false;
  bool stats = false;
  std::optional<double> timeout_s;
};

// "1,2, 3" -> {1, 2, 3}. An error names the flag and the piece that is no 32-bit integer.
absl::StatusOr<std::vector<int32_t>> ParseTokenIds(absl::string_view list, absl::string_view flag = "--token-ids");

// "5:1.5,7:-100" -> {{5, 1.5}, {7, -100}}. An error names the piece.
absl::StatusOr<std::vector<std::pair<int32_t, float>>> ParseBiases(absl::string_view list);

// The prompt is a conversation of one message, or with --raw text, or token ids. --json reports the chosen tokens'
// log-probabilities, so it asks for them.
absl::StatusOr<v1::GenerateRequest> MakeRequest(const GenerateOptions& options);

// Whether the router refused a conversation because the model has no chat template: then the text alone is the prompt.
bool HasNoTemplate(absl::string_view refusal);

}  // namespace sluice::cli
