#include "simulation/client.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace sluice::simulation {

Client::Client(const router::Submit& submit)
    : call_(submit.call),
      max_tokens_(submit.sequence.sampling().max_tokens()),
      prompt_logprobs_(submit.sequence.sampling().has_prompt_logprobs() ? submit.sequence.num_prompt_tokens() - 1 : 0),
      logprobs_(submit.sequence.sampling().has_logprobs()),
      hurried_(submit.deadline != absl::InfiniteFuture()) {
  for (int i = 0; i < std::max(1, submit.sequence.sampling().n()); ++i) {
    choices_.push_back({AnswerModel(submit.sequence, i)});
  }
}

std::string Client::OnTokens(const router::ClientTokens& got) {
  const pb::Tokens& tokens = got.tokens;
  if (ended_) return "tokens after the end";
  if (tokens.choice() < 0 || tokens.choice() >= choices()) return absl::StrCat("tokens of choice ", tokens.choice());
  Choice& choice = choices_[size_t(tokens.choice())];
  if (tokens.token_ids_size() == 0) return "tokens without a token";
  if (tokens.first_index() != choice.answer.position()) {
    return absl::StrCat("token ", tokens.first_index(), " of choice ", tokens.choice(), " came where ",
                        choice.answer.position(), " was due");
  }
  if (tokens.logprobs_size() != (logprobs_ ? tokens.token_ids_size() : 0)) return "log-probabilities are missing";
  const int due = begun_ ? 0 : prompt_logprobs_;
  if (tokens.prompt_logprobs_size() != due) {
    return absl::StrCat(tokens.prompt_logprobs_size(), " log-probabilities of the prompt where ", due, " were due");
  }
  begun_ = true;
  for (int32_t token : tokens.token_ids()) {
    if (choice.over(max_tokens_)) return absl::StrCat("a token after the last one of choice ", tokens.choice());
    if (token != choice.answer.Next()) {
      return absl::StrCat("token ", choice.answer.position(), " of choice ", tokens.choice(), " is ", token, ", not ",
                          choice.answer.Next());
    }
    choice.answer.Take(token);
  }
  return "";
}

std::string Client::OnEnd(const router::ClientEnd& end) {
  if (ended_) return "a second end";
  ended_ = true;
  status_ = end.status;
  moves_ = end.moves;
  switch (end.status.code()) {
    case absl::StatusCode::kOk:
      return CheckComplete(end);
    case absl::StatusCode::kCancelled:
      return cancelled_ ? "" : "cancelled, though its client stayed";
    case absl::StatusCode::kDeadlineExceeded:
      return hurried_ ? "" : "a deadline that nobody set";
    case absl::StatusCode::kInvalidArgument:
      return absl::StrCat("a request that fits is refused: ", end.status.message());
    default:
      return "";
  }
}

std::string Client::CheckComplete(const router::ClientEnd& end) const {
  if (int(end.reasons.size()) != choices()) return absl::StrCat(end.reasons.size(), " reasons");
  for (int i = 0; i < choices(); ++i) {
    const Choice& choice = choices_[size_t(i)];
    const pb::FinishReason reason = end.reasons[size_t(i)];
    const bool eos = choice.answer.last() == kEos;
    if (!choice.over(max_tokens_) && !choice.stopped) {
      return absl::StrCat("choice ", i, " ended whole after ", choice.answer.position(), " of ", max_tokens_,
                          " tokens");
    }
    const pb::FinishReason due = eos || choice.stopped ? pb::FINISH_REASON_STOP : pb::FINISH_REASON_LENGTH;
    if (reason != due && !(choice.stopped && reason != pb::FINISH_REASON_UNSPECIFIED)) {
      return absl::StrCat("choice ", i, " ended for reason ", int(reason), " after ", choice.answer.position(),
                          " tokens");
    }
  }
  return "";
}

}  // namespace sluice::simulation
