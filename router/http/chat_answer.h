// The answer of POST /v1/chat/completions: from responses to JSON, streamed or whole. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/text/chat_template.h"
#include "proto/serving.pb.h"
#include "router/http/answer_json.h"
#include "router/http/api_request.h"
#include "router/http/tool_calls.h"

namespace sluice::router {

class ChatAnswer {
 public:
  // `style`: how this model spells tool calls; they are looked for where the request has tools.
  ChatAnswer(const ApiRequest& request, const AnswerNames& names, engine::ToolCallStyle style);

  // What the client gets for this response; responses come in their order. Streaming: whole events, one a choice and
  // response that has news (the first also says whose the message is), the last of them `data: [DONE]`. Else: nothing
  // until the last response, which gives the body.
  std::string Add(const pb::GenerateResponse& response);

 private:
  struct Choice {
    std::optional<ToolCallParser> parser;
    bool began = false;    // streaming: its first event was sent
    std::string text;      // not yet sent
    std::string calls;     // not yet sent: elements
    std::string logprobs;  // not yet sent: elements
    int num_calls = 0;
    pb::FinishReason reason = pb::FINISH_REASON_UNSPECIFIED;

    bool HasNews() const { return !text.empty() || !calls.empty() || !logprobs.empty(); }
  };

  void Collect(const pb::ChoiceDelta& delta, bool last);
  void AddCalls(size_t index, const std::vector<ToolCall>& calls);
  std::string Message(Choice& choice);  // or the delta of an event
  std::string TakeChoice(size_t index);
  std::string Finish(const Choice& choice) const;
  std::string Tail(const pb::GenerateResponse& last) const;  // usage and timing

  const bool stream_;
  const bool include_usage_;
  const bool continuous_usage_;
  const bool timing_;
  const bool has_logprobs_;
  const bool has_prompt_logprobs_;
  const std::string id_;
  const std::string head_;
  std::string prompt_logprobs_;
  pb::Usage so_far_;
  std::vector<Choice> choices_;
};

}  // namespace sluice::router
