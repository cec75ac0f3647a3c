// The answer of one HTTP request on its way from the core's thread to the connection's: a bounded outbox. A client that
// reads too slowly costs `outbox_bytes` at most.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "router/call_sink.h"

namespace sluice::router {

class HttpCall final : public CallSink {
 public:
  // `wake` is called from the core's thread whenever Take has something new.
  HttpCall(size_t outbox_bytes, std::function<void()> wake) : outbox_bytes_(outbox_bytes), wake_(std::move(wake)) {}

  bool Send(std::vector<pb::GenerateResponse> responses) override;
  void End(const absl::Status& status, absl::Duration retry_after) override;

  struct Batch {
    std::vector<pb::GenerateResponse> responses;
    std::optional<absl::Status> end;
    absl::Duration retry_after;
  };
  Batch Take();
  bool too_slow() const;

 private:
  const size_t outbox_bytes_;
  const std::function<void()> wake_;

  mutable absl::Mutex mutex_;
  Batch batch_ ABSL_GUARDED_BY(mutex_);
  size_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  bool woken_ ABSL_GUARDED_BY(mutex_) = false;  // since the last Take
  bool too_slow_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace sluice::router
