// What the client has got of its answer: the tokens of every choice and how each ended. This record, not what workers
// say, is the truth: tokens are appended consecutively, each once, whoever computes them, and a replay continues from
// here. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "proto/worker.pb.h"

namespace sluice::router {

namespace pb = ::sluice::v1;

class Answer {
 public:
  // `asked`: complete, as the client's edge made it. It must outlive this object.
  explicit Answer(const pb::SequenceSpec& asked);

  int choices() const { return int(choices_.size()); }
  int emitted(int choice) const { return int(choices_[size_t(choice)].tokens.size()); }
  int64_t emitted() const;  // of all choices
  bool begun() const { return emitted() > 0; }
  pb::FinishReason reason(int choice) const { return choices_[size_t(choice)].reason; }
  bool over(int choice) const { return reason(choice) != pb::FINISH_REASON_UNSPECIFIED; }
  bool complete() const;  // every choice is over
  std::vector<pb::FinishReason> reasons() const;

  // All but the first `skip` of `tokens`, as the client gets them. REQUIRES: they continue the choice.
  pb::Tokens Append(int choice, const pb::Tokens& tokens, int skip);

  // The first reason stands.
  void End(int choice, pb::FinishReason reason);

  // Ends the choice if its last token is one that ends answers, though no worker has said so any more.
  void EndByLastToken(int choice);

  // What a worker is to compute for choices [first, first + count): the whole request, or, for one choice, what is left
  // of it after the tokens that were emitted. REQUIRES: count is 1, or nothing of them was emitted.
  pb::SequenceSpec Remaining(int first, int count) const;

 private:
  struct Choice {
    std::vector<int32_t> tokens;
    pb::FinishReason reason = pb::FINISH_REASON_UNSPECIFIED;
  };

  const pb::SequenceSpec& asked_;
  std::vector<Choice> choices_;
};

}  // namespace sluice::router
