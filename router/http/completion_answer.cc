#include "router/http/completion_answer.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"

namespace sluice::router {
namespace {

int64_t CharactersBegun(std::string_view bytes) {
  return std::count_if(bytes.begin(), bytes.end(), [](char c) { return (c & 0xC0) != 0x80; });
}

std::vector<std::string> Texts(const ApiRequest& request) {
  std::vector<std::string> texts(request.count());
  if (request.request.has_text()) texts[0] = request.request.text();
  for (size_t i = 0; i < request.prompts.size(); ++i) {
    if (const std::string* text = std::get_if<std::string>(&request.prompts[i])) texts[i] = *text;
  }
  return texts;
}

}  // namespace

void CompletionAnswer::Logprobs::Add(const pb::TokenLogprobs& token, int64_t offset) {
  const std::string sampled = TokenText(token.sampled().token());
  AppendElement(tokens, Quoted(sampled));
  AppendElement(token_logprobs, LogprobJson(token.sampled().logprob()));
  AppendElement(text_offset, absl::StrCat(offset));
  // The sampled token is always among them, so there may be one more than was asked for.
  std::string top;
  bool found = false;
  for (const pb::TokenLogprob& entry : token.top()) {
    found |= entry.token_id() == token.sampled().token_id();
    AppendElement(top, absl::StrCat(Quoted(TokenText(entry.token())), ":", LogprobJson(entry.logprob())));
  }
  if (!found) AppendElement(top, absl::StrCat(Quoted(sampled), ":", LogprobJson(token.sampled().logprob())));
  AppendElement(top_logprobs, absl::StrCat("{", top, "}"));
}

void CompletionAnswer::Logprobs::AddFirst(const std::string& token) {
  AppendElement(tokens, Quoted(TokenText(token)));
  for (std::string* array : {&token_logprobs, &top_logprobs}) AppendElement(*array, "null");
  AppendElement(text_offset, "0");
}

std::string CompletionAnswer::Logprobs::Json() const {
  if (tokens.empty()) return "null";
  return absl::StrCat("{\"text_offset\":[", text_offset, "],\"token_logprobs\":[", token_logprobs, "],\"tokens\":[",
                      tokens, "],\"top_logprobs\":[", top_logprobs, "]}");
}

CompletionAnswer::CompletionAnswer(const ApiRequest& request, const AnswerNames& names,
                                   const engine::Tokenizer* tokenizer)
    : stream_(request.stream),
      include_usage_(request.include_usage),
      continuous_usage_(request.include_usage && request.continuous_usage),
      timing_(request.timing),
      echo_(request.echo),
      no_answer_(request.no_answer),
      has_logprobs_(request.request.sampling().has_logprobs()),
      has_prompt_logprobs_(request.prompt_logprobs),
      n_(size_t(std::max(1, request.request.sampling().n()))),
      head_(OpenObject(names, "text_completion")),
      tokenizer_(tokenizer),
      texts_(request.echo ? Texts(request) : std::vector<std::string>(request.count())),
      prompt_logprobs_(request.count()),
      choices_(n_ * request.count()),
      open_(request.count()) {}

// The prompt before each of its choices; further responses with `prompt` carry further log-probabilities only.
void CompletionAnswer::Echo(size_t prompt, const pb::PromptInfo& info) {
  std::string& text = texts_[prompt];
  if (text.empty()) {
    for (const int32_t id : info.token_ids()) text += tokenizer_->TokenBytes(id);
  }
  for (size_t i = prompt * n_; i < (prompt + 1) * n_; ++i) {
    Choice& choice = choices_[i];
    if (info.token_ids_size() > 0) choice.text = text;
    if (!has_logprobs_) continue;
    if (info.token_ids_size() > 0) {
      const std::string first(tokenizer_->TokenBytes(info.token_ids(0)));
      choice.logprobs.AddFirst(first);
      choice.characters = CharactersBegun(first);
    }
    for (const pb::TokenLogprobs& token : info.logprobs()) {
      choice.logprobs.Add(token, choice.characters);
      choice.characters += CharactersBegun(token.sampled().token());
    }
  }
}

void CompletionAnswer::Collect(size_t prompt, const pb::ChoiceDelta& delta) {
  const size_t own = std::min(size_t(std::max(0, delta.index())), n_ - 1);
  Choice& choice = choices_[prompt * n_ + own];
  choice.reason = delta.finish_reason();
  if (no_answer_) {
    if (choice.reason != pb::FINISH_REASON_UNSPECIFIED) choice.reason = pb::FINISH_REASON_LENGTH;
    return;
  }
  choice.text += delta.text();
  for (const pb::TokenLogprobs& token : delta.logprobs()) {
    choice.logprobs.Add(token, choice.characters);
    choice.characters += CharactersBegun(token.sampled().token());
  }
}

std::string CompletionAnswer::TakeChoice(size_t index) {
  Choice& choice = choices_[index];
  const std::string text = std::exchange(choice.text, "");
  const Logprobs logprobs = std::exchange(choice.logprobs, {});
  const std::string prompt =
      has_prompt_logprobs_ ? absl::StrCat(",\"prompt_logprobs\":[", prompt_logprobs_[index / n_], "]") : "";
  return absl::StrCat("{\"text\":", Quoted(text), ",\"index\":", index, ",\"logprobs\":", logprobs.Json(),
                      ",\"finish_reason\":", FinishJson(choice.reason), prompt, "}");
}

std::string CompletionAnswer::Events(size_t prompt, bool last) {
  std::string events;
  const std::string usage = continuous_usage_ ? UsageJson(so_far_) : "null";
  for (size_t i = prompt * n_; i < (prompt + 1) * n_; ++i) {
    if (!last && !choices_[i].HasNews()) continue;
    events += SseEvent(absl::StrCat(head_, ",\"choices\":[", TakeChoice(i), "]",
                                    include_usage_ ? absl::StrCat(",\"usage\":", usage) : "", "}"));
  }
  return events;
}

std::string CompletionAnswer::Whole() {
  std::string choices;
  for (size_t i = 0; i < choices_.size(); ++i) AppendElement(choices, TakeChoice(i));
  return absl::StrCat(head_, ",\"choices\":[", choices, "],\"usage\":", UsageJson(usage_),
                      timing_ ? absl::StrCat(",\"timing\":[", timings_, "]") : "", "}");
}

std::string CompletionAnswer::Add(size_t prompt, const pb::GenerateResponse& response) {
  if (response.has_prompt() && has_prompt_logprobs_) AppendPromptLogprobs(prompt_logprobs_[prompt], response.prompt());
  if (response.has_prompt() && echo_) Echo(prompt, response.prompt());
  for (const pb::ChoiceDelta& delta : response.choices()) Collect(prompt, delta);
  AddSoFar(so_far_, response);
  const bool last = response.has_usage();
  if (last) {
    --open_;
    AddUsage(usage_, response.usage());
    if (no_answer_) usage_.set_completion_tokens(0);
    if (timing_) AppendElement(timings_, TimingJson(response.timing()));
  }
  if (!stream_) return open_ == 0 ? Whole() : "";
  std::string events = Events(prompt, last);
  if (open_ > 0) return events;
  if (include_usage_ || timing_) {
    events += SseEvent(absl::StrCat(head_, ",\"choices\":[]", include_usage_ ? ",\"usage\":" : "",
                                    include_usage_ ? UsageJson(usage_) : "",
                                    timing_ ? absl::StrCat(",\"timing\":[", timings_, "]") : "", "}"));
  }
  return events + "data: [DONE]\n\n";
}

}  // namespace sluice::router
