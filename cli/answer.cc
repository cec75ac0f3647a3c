#include "cli/answer.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/sampling_limits.h"

namespace sluice::cli {
namespace {

using nlohmann::json;

json TimingJson(const v1::Timing& timing) {
  json timeline = json::array();
  for (const v1::TimelineEvent& event : timing.timeline()) {
    timeline.push_back(
        {{"name", event.name()}, {"at_ms", event.at_ms()}, {"worker", event.worker()}, {"amount", event.amount()}});
  }
  return {{"queue_ms", timing.queue_ms()},
          {"ttft_ms", timing.ttft_ms()},
          {"tpot_ms", timing.tpot_ms()},
          {"total_ms", timing.total_ms()},
          {"transfer_bytes", timing.transfer_bytes()},
          {"exposed_transfer_ms", timing.exposed_transfer_ms()},
          {"moves", timing.moves()},
          {"timeline", std::move(timeline)}};
}

json TopJson(const v1::TokenLogprobs& token) {
  json top = json::array();
  for (const v1::TokenLogprob& entry : token.top()) {
    top.push_back({{"token_id", entry.token_id()}, {"logprob", entry.logprob()}});
  }
  return top;
}

// Of tokens, parallel: the log-probabilities, and the alternatives where there are any.
struct LogprobLists {
  json logprobs = json::array();
  json top = json::array();
  bool any_top = false;

  template <typename Tokens>
  explicit LogprobLists(const Tokens& tokens) {
    for (const v1::TokenLogprobs& token : tokens) {
      logprobs.push_back(token.sampled().logprob());
      top.push_back(TopJson(token));
      any_top = any_top || token.top_size() > 0;
    }
  }
};

// Parallel to the prompt's tokens: null stands for the first, which nothing predicts.
void AddPromptLogprobs(const v1::PromptInfo& prompt, json& out) {
  if (prompt.logprobs().empty()) return;
  LogprobLists lists(prompt.logprobs());
  lists.logprobs.insert(lists.logprobs.begin(), nullptr);
  out["prompt_logprobs"] = std::move(lists.logprobs);
  if (!lists.any_top) return;
  lists.top.insert(lists.top.begin(), nullptr);
  out["prompt_top_logprobs"] = std::move(lists.top);
}

}  // namespace

const char* FinishReasonName(v1::FinishReason reason) {
  switch (reason) {
    case v1::FINISH_REASON_STOP:
      return "stop";
    case v1::FINISH_REASON_LENGTH:
      return "length";
    default:
      return "";
  }
}

std::string Answer::Add(const v1::GenerateResponse& response) {
  if (!response.request_id().empty()) request_id_ = response.request_id();
  if (response.has_prompt()) prompt_.MergeFrom(response.prompt());
  if (response.has_usage()) usage_ = response.usage();
  if (response.has_timing()) timing_ = response.timing();
  std::string added;
  for (const v1::ChoiceDelta& delta : response.choices()) {
    if (delta.index() < 0 || delta.index() >= kMaxChoices) continue;
    const size_t index = size_t(delta.index());
    if (index >= choices_.size()) choices_.resize(index + 1);
    Choice& choice = choices_[index];
    choice.text += delta.text();
    if (index == 0) added += delta.text();
    choice.token_ids.insert(choice.token_ids.end(), delta.token_ids().begin(), delta.token_ids().end());
    choice.logprobs.insert(choice.logprobs.end(), delta.logprobs().begin(), delta.logprobs().end());
    if (delta.finish_reason() != v1::FINISH_REASON_UNSPECIFIED) choice.finish_reason = delta.finish_reason();
  }
  return added;
}

bool Answer::finished() const {
  return std::all_of(choices_.begin(), choices_.end(),
                     [](const Choice& c) { return c.finish_reason != v1::FINISH_REASON_UNSPECIFIED; });
}

std::string Answer::AllTexts() const {
  std::string out;
  for (size_t i = 0; i < choices_.size(); ++i) {
    absl::StrAppend(&out, "--- answer ", i, "\n", choices_[i].text, "\n");
  }
  return out;
}

json Answer::Choice::ToJson() const {
  LogprobLists lists(logprobs);
  json out = {{"text", text},
              {"token_ids", token_ids},
              {"logprobs", std::move(lists.logprobs)},
              {"finish_reason", FinishReasonName(finish_reason)}};
  if (lists.any_top) out["top_logprobs"] = std::move(lists.top);
  return out;
}

json Answer::ToJson() const {
  json choices = json::array();
  for (size_t i = 0; i < choices_.size(); ++i) {
    choices.push_back(choices_[i].ToJson());
    choices.back()["index"] = i;
  }
  json out = choices_.front().ToJson();
  out.update({{"request_id", request_id_},
              {"model", prompt_.model()},
              {"seed", prompt_.seed()},
              {"prompt_token_ids", json(std::vector<int32_t>(prompt_.token_ids().begin(), prompt_.token_ids().end()))},
              {"choices", std::move(choices)},
              {"usage",
               {{"prompt_tokens", usage_.prompt_tokens()},
                {"completion_tokens", usage_.completion_tokens()},
                {"cached_tokens", usage_.cached_tokens()}}},
              {"timing", TimingJson(timing_)}});
  AddPromptLogprobs(prompt_, out);
  return out;
}

std::string Answer::Stats(std::optional<double> first_text_ms) const {
  std::string out = absl::StrFormat("TTFT %.1f ms", timing_.ttft_ms());
  if (first_text_ms) absl::StrAppendFormat(&out, " (text seen here after %.1f ms)", *first_text_ms);
  absl::StrAppendFormat(&out, "\nTPOT %.2f ms", timing_.tpot_ms());
  if (timing_.tpot_ms() > 0) absl::StrAppendFormat(&out, " (%.1f tokens/s)", 1000 / timing_.tpot_ms());
  absl::StrAppendFormat(&out, "\ntokens %d prompt (%d cached) + %d generated, finished by %s\n", usage_.prompt_tokens(),
                        usage_.cached_tokens(), usage_.completion_tokens(),
                        FinishReasonName(choices_.front().finish_reason));
  absl::StrAppendFormat(&out, "total %.1f ms, of these %.1f ms in the queue; seed %d\n", timing_.total_ms(),
                        timing_.queue_ms(), prompt_.seed());
  for (const v1::TimelineEvent& event : timing_.timeline()) {
    absl::StrAppendFormat(&out, "%10.1f ms  %s", event.at_ms(), event.name());
    if (event.amount() != 0) absl::StrAppend(&out, " ", event.amount());
    if (!event.worker().empty()) absl::StrAppend(&out, " at ", event.worker());
    absl::StrAppend(&out, "\n");
  }
  return out;
}

}  // namespace sluice::cli
