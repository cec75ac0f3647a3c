#include "cli/bench/http_words.h"

#include <cstdlib>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "nlohmann/json.hpp"

namespace sluice::cli::bench {
namespace {

using nlohmann::json;

constexpr const char* kWords[] = {"time",  "year",   "people", "way",   "day",   "man",   "thing", "world",
                                  "life",  "hand",   "part",   "child", "place", "work",  "week",  "case",
                                  "point", "number", "group",  "fact",  "water", "room",  "book",  "word",
                                  "house", "night",  "story",  "month", "right", "study", "money", "state"};

std::string AsWords(const std::vector<int32_t>& ids) {
  std::string text;
  for (const int32_t id : ids) absl::StrAppend(&text, text.empty() ? "" : " ", kWords[size_t(id) % std::size(kWords)]);
  return text;
}

int Count(const json& object, const char* name) {
  const auto it = object.find(name);
  return it != object.end() && it->is_number_integer() ? it->get<int>() : -1;
}

std::string Message(const json& error) {
  if (error.is_object() && error.contains("message") && error["message"].is_string()) return error["message"];
  return error.dump(-1, ' ', false, json::error_handler_t::replace);
}

void ReadUsage(const json& usage, HttpEvent& event) {
  if (!usage.is_object()) return;
  event.prompt_tokens = Count(usage, "prompt_tokens");
  event.completion_tokens = Count(usage, "completion_tokens");
  const auto details = usage.find("prompt_tokens_details");
  if (details != usage.end() && details->is_object()) event.cached_tokens = Count(*details, "cached_tokens");
}

bool HasText(const json& choice) {
  const auto not_empty = [](const json& object, const char* name) {
    const auto it = object.find(name);
    return it != object.end() && it->is_string() && !it->get_ref<const std::string&>().empty();
  };
  if (!choice.is_object()) return false;
  if (not_empty(choice, "text")) return true;
  const auto delta = choice.find("delta");
  if (delta == choice.end() || !delta->is_object()) return false;
  return not_empty(*delta, "content") || not_empty(*delta, "reasoning_content");
}

}  // namespace

const char* HttpPath(HttpApi api) {
  return api == HttpApi::kChat ? "/v1/chat/completions" : "/v1/completions";
}

std::string HttpBody(HttpApi api, const HttpQuestion& question) {
  json body = {{"model", question.model},
               {"max_tokens", question.max_tokens},
               {"temperature", question.temperature},
               {"seed", question.seed},
               {"ignore_eos", question.ignore_eos},
               {"stream", true},
               {"stream_options", {{"include_usage", true}}}};
  if (api == HttpApi::kChat) {
    body["messages"] = {{{"role", "user"}, {"content", AsWords(question.prompt)}}};
  } else {
    body["prompt"] = question.prompt;
  }
  return body.dump(-1, ' ', false, json::error_handler_t::replace);
}

absl::StatusOr<HttpEvent> ReadHttpEvent(const std::string& data) {
  HttpEvent event;
  if (data == "[DONE]") {
    event.done = true;
    return event;
  }
  const json body = json::parse(data, nullptr, false);
  if (!body.is_object()) return absl::DataLossError(absl::StrCat("an event is no JSON object: ", data.substr(0, 80)));
  if (const auto error = body.find("error"); error != body.end()) event.error = Message(*error);
  if (const auto usage = body.find("usage"); usage != body.end()) ReadUsage(*usage, event);
  if (const auto choices = body.find("choices"); choices != body.end() && choices->is_array()) {
    for (const json& choice : *choices) event.text = event.text || HasText(choice);
  }
  return event;
}

std::string HttpErrorText(int status, const std::string& body) {
  const json parsed = json::parse(body, nullptr, false);
  std::string text = parsed.is_object() && parsed.contains("error") ? Message(parsed["error"]) : body.substr(0, 200);
  absl::StrReplaceAll({{"\n", " "}, {"\r", " "}}, &text);
  return absl::StrCat("HTTP ", status, text.empty() ? "" : ": ", text);
}

int VocabularyOf(const std::string& refusal) {
  constexpr char kBefore[] = "ids must be in [0, ";
  const size_t at = refusal.find(kBefore);
  return at == std::string::npos ? 0 : std::atoi(refusal.c_str() + at + sizeof(kBefore) - 1);
}

}  // namespace sluice::cli::bench
