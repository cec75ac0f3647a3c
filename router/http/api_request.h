// What a client of the HTTP API asked for: what is computed, and how the answer is spelled.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "proto/serving.pb.h"

namespace sluice::router {

namespace pb = ::sluice::v1;

using Prompt = std::variant<std::string, std::vector<int32_t>>;

struct ApiRequest {
  pb::GenerateRequest request;  // complete, but for the prompt where there are several
  std::vector<Prompt> prompts;  // of a completion with several prompts; else empty

  bool stream = false;
  bool include_usage = false;     // stream_options.include_usage
  bool continuous_usage = false;  // stream_options.continuous_usage_stats: in every event
  bool timing = false;            // the answer says how long what took
  bool echo = false;              // completions: the answer begins with the prompt
  bool no_answer = false;         // max_tokens 0: only the prompt counts
  bool prompt_logprobs = false;   // the answer shows them
  bool logprobs = false;          // chat
  int top_logprobs = 0;           // chat
  bool use_tools = false;         // chat: what looks like a tool call is one

  size_t count() const { return prompts.empty() ? 1 : prompts.size(); }
  // The request of one prompt; its id is that of the whole with "-i" where there are several.
  pb::GenerateRequest Request(size_t i) const;
};

}  // namespace sluice::router
