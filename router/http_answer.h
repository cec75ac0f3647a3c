// The answer of POST /v1/completions: from responses to JSON, streamed or whole. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/serving.pb.h"
#include "router/http_request.h"

namespace sluice::router {

class CompletionAnswer {
 public:
  struct Names {
    std::string id;
    std::string model;
    int64_t created = 0;  // seconds since 1970
  };

  CompletionAnswer(const CompletionRequest& request, const Names& names);

  // What the client gets for this response; responses come in their order. Streaming: whole events (`data: ...\n\n`,
  // of one choice each, the last of them `data: [DONE]`); a token whose characters are incomplete gives nothing yet.
  // Else: nothing until the last response, which gives the body.
  std::string Add(const pb::GenerateResponse& response);

  // The event that tells an open stream that it failed. No [DONE] follows.
  static std::string ErrorEvent(const absl::Status& status);

 private:
  // Log-probabilities in the completions format: four JSON arrays, here without their brackets.
  struct Logprobs {
    std::string tokens, token_logprobs, top_logprobs, text_offset;

    void Add(const pb::TokenLogprobs& token, int64_t offset);
    std::string Json() const;  // null when nothing was added
  };

  struct Choice {
    std::string text;        // not yet sent
    Logprobs logprobs;       // not yet sent
    int64_t characters = 0;  // of the tokens so far
    pb::FinishReason reason = pb::FINISH_REASON_UNSPECIFIED;

    bool HasNews() const { return !text.empty() || !logprobs.tokens.empty(); }
  };

  void Collect(const pb::ChoiceDelta& delta);
  void CollectPrompt(const pb::PromptInfo& prompt);
  std::string TakeChoice(size_t index);

  const bool stream_;
  const bool include_usage_;
  const bool has_prompt_logprobs_;
  std::string prompt_logprobs_;  // elements of the JSON array
  const std::string head_;       // what all objects of this answer begin with
  std::vector<Choice> choices_;
};

// The body of GET /v1/models. `root` is the model as it was given to the router.
std::string ModelsBody(const std::string& name, const std::string& root, int context_length, int64_t created);

}  // namespace sluice::router
