// The text side of one answer: from the tokens of a worker to the responses of a client. Pure.
//
// Order of the responses: one with `prompt` before the first tokens (more where the prompt's log-probabilities are
// long, so that no client meets a message above gRPC's default of 4 MiB), one per batch of tokens, and for an answer
// that ended well a last one with what was held back, finish_reason, `usage` and `timing`. An error adds nothing: the
// call's status says it. Rules:
//  - a stop string ends the choice: no byte of it is sent, the token that completed it is the last one that counts;
//  - an end-of-sequence or stop token is among token_ids and counts, but yields no text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/time/time.h"
#include "engine/text/detokenizer.h"
#include "engine/text/stop_matcher.h"
#include "engine/text/tokenizer.h"
#include "router/events.h"
#include "router/validate.h"

namespace sluice::router {

class AnswerStream {
 public:
  // The tokenizer must outlive the stream.
  AnswerStream(const engine::Tokenizer* tokenizer, const ValidRequest& request, absl::Time received);

  struct Output {
    std::vector<pb::GenerateResponse> responses;
    bool stop_found = false;  // the choice of these tokens is complete: no more of it are needed
    // For whoever measures: tokens that count, when the choice's last ones were, and, of the answer's first ones, how
    // long they took.
    int tokens = 0;
    std::optional<absl::Duration> since_last;
    std::optional<absl::Duration> since_received;
  };
  Output OnTokens(const ClientTokens& event);

  // REQUIRES: event.status.ok().
  pb::GenerateResponse OnEnd(const ClientEnd& event);

 private:
  struct Choice {
    engine::Detokenizer detokenizer;
    engine::StopMatcher matcher;
    int tokens = 0;  // that count
    bool stopped = false;
    absl::Time first_at;
    absl::Time last_at;
  };

  pb::GenerateResponse NewResponse() const;
  // True when the token completed a stop string.
  bool AddToken(Choice& choice, const pb::Tokens& tokens, int i, pb::ChoiceDelta& delta);
  void AddPrompt(const pb::Tokens& tokens, std::vector<pb::GenerateResponse>& responses);
  void AddBytes(pb::TokenLogprobs& logprobs) const;
  pb::Timing MakeTiming(const ClientEnd& event) const;

  const engine::Tokenizer* tokenizer_;
  std::string request_id_;
  absl::Time received_;
  pb::PromptInfo prompt_;
  int prompt_tokens_ = 0;
  bool prompt_sent_ = false;
  absl::flat_hash_set<int32_t> silent_ids_;  // end the answer without text
  std::vector<Choice> choices_;
};

}  // namespace sluice::router
