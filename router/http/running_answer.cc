#include "router/http/running_answer.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace sluice::router {
namespace {

std::variant<CompletionAnswer, ChatAnswer> SpellingOf(const ApiRequest& request, const AnswerNames& names,
                                                      const ServedModel& model) {
  if (!request.request.has_chat()) return CompletionAnswer(request, names, model.tokenizer);
  return ChatAnswer(request, names, model.tool_call_style());
}

}  // namespace

RunningAnswer::RunningAnswer(Calls* calls, const ApiRequest& request, const AnswerNames& names)
    : calls_(calls), stream_(request.stream), spelling_(SpellingOf(request, names, calls->model())) {}

absl::StatusOr<std::unique_ptr<RunningAnswer>> RunningAnswer::Start(Calls* calls, const ApiRequest& request,
                                                                    const AnswerNames& names, size_t outbox_bytes,
                                                                    absl::Time received,
                                                                    const std::function<void()>& wake) {
  auto answer = std::unique_ptr<RunningAnswer>(new RunningAnswer(calls, request, names));
  const size_t outbox = request.stream ? outbox_bytes : std::numeric_limits<size_t>::max();
  for (size_t i = 0; i < request.count(); ++i) {
    Part& part = answer->parts_.emplace_back();
    part.call = std::make_shared<HttpCall>(outbox, wake);
    part.id = calls->Add(part.call);
    if (absl::Status started = calls->Start(part.id, request.Request(i), received); !started.ok()) {
      part.id = 0;
      return started;
    }
  }
  return answer;
}

std::string RunningAnswer::Spell(size_t prompt, const pb::GenerateResponse& response) {
  if (auto* completion = std::get_if<CompletionAnswer>(&spelling_)) return completion->Add(prompt, response);
  return std::get<ChatAnswer>(spelling_).Add(response);
}

RunningAnswer::News RunningAnswer::Take() {
  News news;
  for (size_t i = 0; i < parts_.size(); ++i) {
    if (parts_[i].id == 0) continue;
    HttpCall::Batch batch = parts_[i].call->Take();
    for (const pb::GenerateResponse& response : batch.responses) news.bytes += Spell(i, response);
    if (!batch.end.has_value()) continue;
    parts_[i].id = 0;
    if (batch.end->ok()) continue;
    news.end = *std::move(batch.end);
    news.retry_after = batch.retry_after;
    Cancel();
    return news;
  }
  if (std::all_of(parts_.begin(), parts_.end(), [](const Part& part) { return part.id == 0; })) {
    news.end = absl::OkStatus();
  }
  return news;
}

bool RunningAnswer::too_slow() const {
  return std::any_of(parts_.begin(), parts_.end(), [](const Part& part) { return part.call->too_slow(); });
}

void RunningAnswer::Cancel() {
  for (Part& part : parts_) {
    if (part.id != 0) calls_->Cancel(std::exchange(part.id, 0), absl::CancelledError("the client is gone"));
  }
}

}  // namespace sluice::router
