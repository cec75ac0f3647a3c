#include "router/answer_stream.h"

#include <algorithm>
#include <utility>

#include "router/timeline.h"

namespace sluice::router {
namespace {

constexpr size_t kPromptBytes = size_t{1} << 20;  // of log-probabilities in one response

}  // namespace

AnswerStream::AnswerStream(const engine::Tokenizer* tokenizer, const ValidRequest& request, absl::Time received)
    : tokenizer_(tokenizer), request_id_(request.request_id), received_(received) {
  const pb::SequenceSpec& sequence = request.sequence;
  *prompt_.mutable_token_ids() = sequence.tokens();
  prompt_.mutable_token_ids()->Truncate(sequence.num_prompt_tokens());
  prompt_.set_seed(sequence.sampling().seed());
  prompt_.set_model(sequence.model());
  prompt_tokens_ = sequence.num_prompt_tokens();
  if (!sequence.sampling().ignore_eos()) {
    silent_ids_.insert(sequence.eos_token_ids().begin(), sequence.eos_token_ids().end());
  }
  silent_ids_.insert(sequence.sampling().stop_token_ids().begin(), sequence.sampling().stop_token_ids().end());
  for (int i = 0; i < std::max(1, sequence.sampling().n()); ++i) {
    choices_.push_back({engine::Detokenizer(tokenizer), engine::StopMatcher(request.stop)});
  }
}

pb::GenerateResponse AnswerStream::NewResponse() const {
  pb::GenerateResponse response;
  response.set_request_id(request_id_);
  return response;
}

AnswerStream::Output AnswerStream::OnTokens(const ClientTokens& event) {
  Output output;
  Choice& choice = choices_.at(size_t(event.tokens.choice()));
  if (choice.stopped) return output;
  if (!prompt_sent_) output.since_received = event.at - received_;
  AddPrompt(event.tokens, output.responses);
  const int before = choice.tokens;
  if (before == 0) choice.first_at = event.at;
  if (before > 0) output.since_last = event.at - choice.last_at;
  choice.last_at = event.at;
  pb::GenerateResponse& response = output.responses.emplace_back(NewResponse());
  pb::ChoiceDelta& delta = *response.add_choices();
  delta.set_index(event.tokens.choice());
  for (int i = 0; i < event.tokens.token_ids_size() && !choice.stopped; ++i) {
    choice.stopped = AddToken(choice, event.tokens, i, delta);
  }
  output.tokens = choice.tokens - before;
  output.stop_found = choice.stopped;
  return output;
}

bool AnswerStream::AddToken(Choice& choice, const pb::Tokens& tokens, int i, pb::ChoiceDelta& delta) {
  const int32_t id = tokens.token_ids(i);
  ++choice.tokens;
  delta.add_token_ids(id);
  if (i < tokens.logprobs_size()) AddBytes(*delta.add_logprobs() = tokens.logprobs(i));
  if (silent_ids_.contains(id)) return false;
  engine::StopMatcher::Result result = choice.matcher.Add(choice.detokenizer.Add(id));
  delta.mutable_text()->append(result.text);
  return result.stopped;
}

void AnswerStream::AddPrompt(const pb::Tokens& tokens, std::vector<pb::GenerateResponse>& responses) {
  if (!std::exchange(prompt_sent_, true)) {
    *responses.emplace_back(NewResponse()).mutable_prompt() = std::move(prompt_);
  }
  size_t bytes = 0;
  for (pb::TokenLogprobs logprobs : tokens.prompt_logprobs()) {
    AddBytes(logprobs);
    bytes += logprobs.ByteSizeLong();
    if (bytes > kPromptBytes || responses.empty()) {
      responses.push_back(NewResponse());
      bytes = logprobs.ByteSizeLong();
    }
    *responses.back().mutable_prompt()->add_logprobs() = std::move(logprobs);
  }
}

// A worker knows no text.
void AnswerStream::AddBytes(pb::TokenLogprobs& logprobs) const {
  const auto add = [this](pb::TokenLogprob& to) { to.set_token(std::string(tokenizer_->TokenBytes(to.token_id()))); };
  add(*logprobs.mutable_sampled());
  for (pb::TokenLogprob& top : *logprobs.mutable_top()) add(top);
}

pb::GenerateResponse AnswerStream::OnEnd(const ClientEnd& event) {
  pb::GenerateResponse response = NewResponse();
  if (!std::exchange(prompt_sent_, true)) *response.mutable_prompt() = std::move(prompt_);
  int completion_tokens = 0;
  for (size_t i = 0; i < choices_.size(); ++i) {
    Choice& choice = choices_[i];
    pb::ChoiceDelta& delta = *response.add_choices();
    delta.set_index(int(i));
    completion_tokens += choice.tokens;
    if (choice.stopped) {
      delta.set_finish_reason(pb::FINISH_REASON_STOP);
      continue;
    }
    // The detokenizer's rest may complete a stop string too.
    engine::StopMatcher::Result rest = choice.matcher.Add(choice.detokenizer.Flush());
    delta.set_text(rest.text + (rest.stopped ? "" : choice.matcher.Flush()));
    delta.set_finish_reason(rest.stopped || i >= event.reasons.size() ? pb::FINISH_REASON_STOP : event.reasons[i]);
  }
  pb::Usage& usage = *response.mutable_usage();
  usage.set_prompt_tokens(prompt_tokens_);
  usage.set_completion_tokens(completion_tokens);
  usage.set_cached_tokens(event.cached_tokens);
  *response.mutable_timing() = MakeTiming(event);
  return response;
}

pb::Timing AnswerStream::MakeTiming(const ClientEnd& event) const {
  pb::Timing timing = TimingOf(event.timeline);
  const Choice& choice = choices_.front();
  if (choice.tokens > 1) {
    timing.set_tpot_ms(absl::ToDoubleMilliseconds(choice.last_at - choice.first_at) / (choice.tokens - 1));
  }
  timing.set_transfer_bytes(event.transfer_bytes);
  timing.set_exposed_transfer_ms(event.exposed_transfer_ms);
  timing.set_moves(event.moves);
  timing.set_total_ms(absl::ToDoubleMilliseconds(event.at - received_));
  return timing;
}

}  // namespace sluice::router
