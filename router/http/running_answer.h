// The answer of one HTTP request while it runs: its calls, one a prompt, and how their responses are spelled.
//
// Promises: the calls are cancelled when it goes away, or when one of them fails; what waits for the client is bounded
// (`outbox_bytes` a call of a stream; an answer in one piece is taken as it comes: it can't wait for its client).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "router/calls.h"
#include "router/http/answer_json.h"
#include "router/http/api_request.h"
#include "router/http/call.h"
#include "router/http/chat_answer.h"
#include "router/http/completion_answer.h"

namespace sluice::router {

class RunningAnswer {
 public:
  // Not OK: nothing was started. `calls` must outlive it; `wake` is called from the core's thread whenever Take has
  // something new.
  static absl::StatusOr<std::unique_ptr<RunningAnswer>> Start(Calls* calls, const ApiRequest& request,
                                                              const AnswerNames& names, size_t outbox_bytes,
                                                              absl::Time received, const std::function<void()>& wake);
  ~RunningAnswer() { Cancel(); }
  RunningAnswer(const RunningAnswer&) = delete;
  RunningAnswer& operator=(const RunningAnswer&) = delete;

  struct News {
    std::string bytes;                // of the body
    std::optional<absl::Status> end;  // of all of it; not OK: what failed first
    absl::Duration retry_after;
  };
  News Take();

  bool stream() const { return stream_; }
  bool too_slow() const;
  void Cancel();  // no news after it

 private:
  struct Part {
    std::shared_ptr<HttpCall> call;
    uint64_t id = 0;  // 0: it has ended
  };
  using Spelling = std::variant<CompletionAnswer, ChatAnswer>;

  RunningAnswer(Calls* calls, const ApiRequest& request, const AnswerNames& names);
  std::string Spell(size_t prompt, const pb::GenerateResponse& response);

  Calls* const calls_;
  const bool stream_;
  Spelling spelling_;
  std::vector<Part> parts_;
};

}  // namespace sluice::router
