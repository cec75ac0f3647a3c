// One answer as it arrives, and its renderings. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "proto/serving.pb.h"

namespace sluice::cli {

class Answer {
 public:
  // Takes one response of the stream; returns the text that it adds (of choice 0).
  std::string Add(const v1::GenerateResponse& response);

  // The object of `sluice generate --json`: request_id, model, seed, text, prompt_token_ids, token_ids, logprobs (of
  // the chosen tokens), finish_reason, usage, timing; top_logprobs when alternatives were asked for.
  nlohmann::json ToJson() const;

  // The lines of --stats. `first_text_ms`: what this client saw, absent when no text came.
  std::string Stats(std::optional<double> first_text_ms) const;

  const std::string& text() const { return text_; }
  bool finished() const { return finish_reason_ != v1::FINISH_REASON_UNSPECIFIED; }

 private:
  std::string request_id_;
  v1::PromptInfo prompt_;
  std::string text_;
  std::vector<int32_t> token_ids_;
  std::vector<v1::TokenLogprobs> logprobs_;
  v1::FinishReason finish_reason_ = v1::FINISH_REASON_UNSPECIFIED;
  v1::Usage usage_;
  v1::Timing timing_;
};

// "stop", "length", or "" while there is none.
const char* FinishReasonName(v1::FinishReason reason);

}  // namespace sluice::cli
