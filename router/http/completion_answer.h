// The answer of POST /v1/completions: from responses to JSON, streamed or whole. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/text/tokenizer.h"
#include "proto/serving.pb.h"
#include "router/http/answer_json.h"
#include "router/http/api_request.h"

namespace sluice::router {

class CompletionAnswer {
 public:
  // The tokenizer, which must outlive it, spells the prompt for `echo`; null: there is no echo.
  CompletionAnswer(const ApiRequest& request, const AnswerNames& names, const engine::Tokenizer* tokenizer);

  // What the client gets for this response of the prompt; those of one prompt come in their order. Streaming: whole
  // events (`data: ...\n\n`, of one choice each, the last of them `data: [DONE]`); a token whose characters are
  // incomplete gives nothing yet. Else: nothing until the last response of the last prompt, which gives the body.
  std::string Add(size_t prompt, const pb::GenerateResponse& response);

 private:
  // Log-probabilities in the completions format: four JSON arrays, here without their brackets.
  struct Logprobs {
    std::string tokens, token_logprobs, top_logprobs, text_offset;

    void Add(const pb::TokenLogprobs& token, int64_t offset);
    void AddFirst(const std::string& token);  // of an echoed prompt: nothing predicts it
    std::string Json() const;                 // null when nothing was added
  };

  struct Choice {
    std::string text;        // not yet sent
    Logprobs logprobs;       // not yet sent
    int64_t characters = 0;  // of the tokens so far
    pb::FinishReason reason = pb::FINISH_REASON_UNSPECIFIED;

    bool HasNews() const { return !text.empty() || !logprobs.tokens.empty(); }
  };

  void Collect(size_t prompt, const pb::ChoiceDelta& delta);
  void Echo(size_t prompt, const pb::PromptInfo& info);
  std::string TakeChoice(size_t index);
  std::string Events(size_t prompt, bool last);
  std::string Whole();

  const bool stream_;
  const bool include_usage_;
  const bool continuous_usage_;
  const bool timing_;
  const bool echo_;
  const bool no_answer_;
  const bool has_logprobs_;
  const bool has_prompt_logprobs_;
  const size_t n_;
  const std::string head_;  // what all objects of this answer begin with
  const engine::Tokenizer* const tokenizer_;
  std::vector<std::string> texts_;            // of the prompts, for echo; empty where it was given as token ids
  std::vector<std::string> prompt_logprobs_;  // of a prompt: elements of the JSON array
  std::vector<Choice> choices_;               // prompt * n + choice
  size_t open_;                               // prompts that have not ended
  pb::Usage usage_;                           // of those that have
  pb::Usage so_far_;                          // of all
  std::string timings_;                       // of those that have, elements
};

}  // namespace sluice::router
