#include "router/http/chat_answer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace sluice::router {
namespace {

std::string TokenJson(const pb::TokenLogprob& entry) {
  const std::string& bytes = entry.token();
  const std::string numbers = absl::StrJoin(
      bytes, ",", [](std::string* out, char c) { absl::StrAppend(out, int(static_cast<unsigned char>(c))); });
  return absl::StrCat("\"token\":", Quoted(TokenText(bytes)), ",\"logprob\":", LogprobJson(entry.logprob()),
                      ",\"bytes\":[", numbers, "]");
}

std::string LogprobsJson(const pb::TokenLogprobs& token) {
  std::string top;
  for (const pb::TokenLogprob& entry : token.top()) AppendElement(top, absl::StrCat("{", TokenJson(entry), "}"));
  return absl::StrCat("{", TokenJson(token.sampled()), ",\"top_logprobs\":[", top, "]}");
}

}  // namespace

ChatAnswer::ChatAnswer(const ApiRequest& request, const AnswerNames& names, engine::ToolCallStyle style)
    : stream_(request.stream),
      include_usage_(request.include_usage),
      continuous_usage_(request.include_usage && request.continuous_usage),
      timing_(request.timing),
      has_logprobs_(request.logprobs),
      has_prompt_logprobs_(request.prompt_logprobs),
      id_(names.id),
      head_(OpenObject(names, request.stream ? "chat.completion.chunk" : "chat.completion")),
      choices_(size_t(std::max(1, request.request.sampling().n()))) {
  if (!request.use_tools) return;
  for (Choice& choice : choices_) choice.parser.emplace(style);
}

void ChatAnswer::AddCalls(size_t index, const std::vector<ToolCall>& calls) {
  Choice& choice = choices_[index];
  for (const ToolCall& call : calls) {
    const int number = choice.num_calls++;
    AppendElement(choice.calls, absl::StrCat("{", stream_ ? absl::StrCat("\"index\":", number, ",") : "",
                                             "\"id\":", Quoted(absl::StrCat("call-", id_, "-", index, "-", number)),
                                             ",\"type\":\"function\",\"function\":{\"name\":", Quoted(call.name),
                                             ",\"arguments\":", Quoted(call.arguments), "}}"));
  }
}

void ChatAnswer::Collect(const pb::ChoiceDelta& delta, bool last) {
  const size_t index = std::min(size_t(std::max(0, delta.index())), choices_.size() - 1);
  Choice& choice = choices_[index];
  choice.reason = delta.finish_reason();
  if (choice.parser.has_value()) {
    ToolCallParser::Found found = choice.parser->Add(delta.text());
    choice.text += found.text;
    AddCalls(index, found.calls);
    if (last) {
      found = choice.parser->Finish();
      choice.text += found.text;
      AddCalls(index, found.calls);
    }
  } else {
    choice.text += delta.text();
  }
  if (!has_logprobs_) return;
  for (const pb::TokenLogprobs& token : delta.logprobs()) AppendElement(choice.logprobs, LogprobsJson(token));
}

// A message without text that calls tools has a null for its content, as OpenAI's.
std::string ChatAnswer::Message(Choice& choice) {
  const bool first = !std::exchange(choice.began, true);
  const std::string text = std::exchange(choice.text, "");
  const std::string calls = std::exchange(choice.calls, "");
  std::string members;
  if (first) AppendElement(members, "\"role\":\"assistant\"");
  if (!text.empty() || (first && (stream_ || choice.num_calls == 0))) {
    AppendElement(members, absl::StrCat("\"content\":", Quoted(text)));
  } else if (!stream_) {
    AppendElement(members, "\"content\":null");
  }
  if (!stream_) AppendElement(members, "\"refusal\":null");
  if (!calls.empty()) AppendElement(members, absl::StrCat("\"tool_calls\":[", calls, "]"));
  return absl::StrCat("{", members, "}");
}

std::string ChatAnswer::Finish(const Choice& choice) const {
  if (choice.num_calls > 0 && choice.reason == pb::FINISH_REASON_STOP) return "\"tool_calls\"";
  return FinishJson(choice.reason);
}

std::string ChatAnswer::TakeChoice(size_t index) {
  Choice& choice = choices_[index];
  const std::string logprobs = std::exchange(choice.logprobs, "");
  const std::string message = Message(choice);
  return absl::StrCat("{\"index\":", index, stream_ ? ",\"delta\":" : ",\"message\":", message, ",\"logprobs\":",
                      logprobs.empty() ? "null" : absl::StrCat("{\"content\":[", logprobs, "],\"refusal\":null}"),
                      ",\"finish_reason\":", Finish(choice), "}");
}

std::string ChatAnswer::Tail(const pb::GenerateResponse& last) const {
  return absl::StrCat(!stream_ || include_usage_ ? absl::StrCat(",\"usage\":", UsageJson(last.usage())) : "",
                      timing_ ? absl::StrCat(",\"timing\":[", TimingJson(last.timing()), "]") : "", "}");
}

std::string ChatAnswer::Add(const pb::GenerateResponse& response) {
  if (response.has_prompt() && has_prompt_logprobs_) AppendPromptLogprobs(prompt_logprobs_, response.prompt());
  AddSoFar(so_far_, response);
  const bool last = response.has_usage();
  for (const pb::ChoiceDelta& delta : response.choices()) Collect(delta, last);
  if (!stream_) {
    if (!last) return "";
    std::string choices;
    for (size_t i = 0; i < choices_.size(); ++i) AppendElement(choices, TakeChoice(i));
    return absl::StrCat(head_, ",\"choices\":[", choices, "]",
                        has_prompt_logprobs_ ? absl::StrCat(",\"prompt_logprobs\":[", prompt_logprobs_, "]") : "",
                        Tail(response));
  }
  const std::string usage =
      include_usage_ ? absl::StrCat(",\"usage\":", continuous_usage_ ? UsageJson(so_far_) : "null") : "";
  std::string events;
  for (size_t i = 0; i < choices_.size(); ++i) {
    if (!last && !choices_[i].HasNews()) continue;
    events += SseEvent(absl::StrCat(head_, ",\"choices\":[", TakeChoice(i), "]", usage, "}"));
  }
  if (last && (include_usage_ || timing_)) events += SseEvent(absl::StrCat(head_, ",\"choices\":[]", Tail(response)));
  if (last) events += "data: [DONE]\n\n";
  return events;
}

}  // namespace sluice::router
