// One client call: what it asks, what it may get, and what it got. Says what is wrong with an answer; of every token it
// knows what it has to be.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "router/events.h"
#include "simulation/answer_model.h"

namespace sluice::simulation {

class Client {
 public:
  explicit Client(const router::Submit& submit);

  // Each: what is wrong, or nothing.
  std::string OnTokens(const router::ClientTokens& tokens);
  std::string OnEnd(const router::ClientEnd& end);

  // What it did, which explains how it may end.
  void Cancelled() { cancelled_ = true; }
  void Stopped(int choice) { choices_[size_t(choice)].stopped = true; }

  uint64_t call() const { return call_; }
  bool ended() const { return ended_; }
  const absl::Status& status() const { return status_; }
  int moves() const { return moves_; }
  int choices() const { return int(choices_.size()); }
  int got(int choice) const { return choices_[size_t(choice)].answer.position(); }
  bool over(int choice) const { return choices_[size_t(choice)].over(max_tokens_); }
  // It neither went away nor had a deadline: only the workers can keep it from its answer.
  bool innocent() const { return !cancelled_ && !hurried_; }

 private:
  struct Choice {
    AnswerModel answer;  // after what came
    bool stopped = false;
    bool over(int max_tokens) const { return answer.last() == kEos || answer.position() >= max_tokens; }
  };

  std::string CheckComplete(const router::ClientEnd& end) const;

  const uint64_t call_;
  const int max_tokens_;
  const int prompt_logprobs_;  // due; 0: not asked for
  const bool logprobs_;
  const bool hurried_;
  std::vector<Choice> choices_;
  bool begun_ = false;
  bool cancelled_ = false;
  bool ended_ = false;
  absl::Status status_;
  int moves_ = 0;
};

}  // namespace sluice::simulation
