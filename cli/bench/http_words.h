// What OpenAI's completions and chat completions are asked and answer, as JSON. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace sluice::cli::bench {

enum class HttpApi { kCompletions, kChat };

struct HttpQuestion {
  std::string model;
  std::vector<int32_t> prompt;
  int max_tokens = 0;
  double temperature = 0;
  uint64_t seed = 0;
  bool ignore_eos = true;
};

const char* HttpPath(HttpApi api);

// A streamed request that also asks for usage. Chat has no way to send token ids: there each id is a common short word
// instead, which is one token in most vocabularies, so that lengths are close and `usage` says what they were.
std::string HttpBody(HttpApi api, const HttpQuestion& question);

// What one event of a stream says.
struct HttpEvent {
  bool text = false;                                                   // some, of the answer
  bool done = false;                                                   // [DONE]
  int prompt_tokens = -1, completion_tokens = -1, cached_tokens = -1;  // -1: it does not say
  std::string error;                                                   // not empty: the stream failed
};
absl::StatusOr<HttpEvent> ReadHttpEvent(const std::string& data);

// The message of an error's body, or what of the body fits into a line.
std::string HttpErrorText(int status, const std::string& body);

// "ids must be in [0, 49152), got ..." of the router's refusal; 0: no such words.
int VocabularyOf(const std::string& refusal);

}  // namespace sluice::cli::bench
