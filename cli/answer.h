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
  // Takes one response of the stream; returns the text that it adds to choice 0.
  std::string Add(const v1::GenerateResponse& response);

  // The object of `sluice generate --json`: request_id, model, seed, text, prompt_token_ids, token_ids, logprobs (of
  // the chosen tokens), finish_reason, usage, timing; top_logprobs when alternatives were asked for, prompt_logprobs
  // and prompt_top_logprobs (parallel to prompt_token_ids, null first) when the prompt's were. `choices` has index,
  // text, token_ids, logprobs, finish_reason (and top_logprobs) of each; what stands above them is the first one's.
  nlohmann::json ToJson() const;

  // The lines of --stats. `first_text_ms`: what this client saw, absent when no text came.
  std::string Stats(std::optional<double> first_text_ms) const;

  // All choices, each below a line that names it. For several of them: they arrive interleaved.
  std::string AllTexts() const;

  const std::string& text() const { return choices_.front().text; }
  bool finished() const;  // all choices

 private:
  struct Choice {
    std::string text;
    std::vector<int32_t> token_ids;
    std::vector<v1::TokenLogprobs> logprobs;
    v1::FinishReason finish_reason = v1::FINISH_REASON_UNSPECIFIED;

    nlohmann::json ToJson() const;
  };

  std::string request_id_;
  v1::PromptInfo prompt_;
  std::vector<Choice> choices_ = std::vector<Choice>(1);
  v1::Usage usage_;
  v1::Timing timing_;
};

// "stop", "length", or "" while there is none.
const char* FinishReasonName(v1::FinishReason reason);

}  // namespace sluice::cli
