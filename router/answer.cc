#include "router/answer.h"

#include <algorithm>

namespace sluice::router {

Answer::Answer(const pb::SequenceSpec& asked) : asked_(asked), choices_(size_t(std::max(1, asked.sampling().n()))) {}

int64_t Answer::emitted() const {
  int64_t sum = 0;
  for (const Choice& choice : choices_) sum += int64_t(choice.tokens.size());
  return sum;
}

bool Answer::complete() const {
  return std::none_of(choices_.begin(), choices_.end(),
                      [](const Choice& c) { return c.reason == pb::FINISH_REASON_UNSPECIFIED; });
}

std::vector<pb::FinishReason> Answer::reasons() const {
  std::vector<pb::FinishReason> reasons;
  for (const Choice& choice : choices_) reasons.push_back(choice.reason);
  return reasons;
}

pb::Tokens Answer::Append(int choice, const pb::Tokens& tokens, int skip) {
  std::vector<int32_t>& sent = choices_[size_t(choice)].tokens;
  const int count = tokens.token_ids_size();
  const bool logprobs = tokens.logprobs_size() == count;
  pb::Tokens fresh;
  fresh.set_choice(choice);
  fresh.set_first_index(int(sent.size()));
  if (!begun()) *fresh.mutable_prompt_logprobs() = tokens.prompt_logprobs();
  for (int i = skip; i < count; ++i) {
    fresh.add_token_ids(tokens.token_ids(i));
    if (logprobs) *fresh.add_logprobs() = tokens.logprobs(i);
    sent.push_back(tokens.token_ids(i));
  }
  return fresh;
}

void Answer::End(int choice, pb::FinishReason reason) {
  if (!over(choice)) choices_[size_t(choice)].reason = reason;
}

// Below min_tokens no token ends an answer, since workers mask those that would.
void Answer::EndByLastToken(int choice) {
  const std::vector<int32_t>& sent = choices_[size_t(choice)].tokens;
  if (over(choice) || sent.empty()) return;
  const pb::SamplingParams& sampling = asked_.sampling();
  const auto is_last = [&](const auto& ids) { return std::find(ids.begin(), ids.end(), sent.back()) != ids.end(); };
  if (is_last(sampling.stop_token_ids()) || (!sampling.ignore_eos() && is_last(asked_.eos_token_ids()))) {
    End(choice, pb::FINISH_REASON_STOP);
  } else if (int(sent.size()) >= sampling.max_tokens()) {
    End(choice, pb::FINISH_REASON_LENGTH);
  }
}

pb::SequenceSpec Answer::Remaining(int first, int count) const {
  pb::SequenceSpec spec = asked_;
  if (count == choices()) {
    if (!begun()) return spec;
  } else {
    spec.mutable_sampling()->set_n(count);
    spec.set_choice(first);
  }
  if (begun()) spec.mutable_sampling()->clear_prompt_logprobs();  // the client has them
  const std::vector<int32_t>& sent = choices_[size_t(first)].tokens;
  spec.mutable_tokens()->Add(sent.begin(), sent.end());
  return spec;
}

}  // namespace sluice::router
