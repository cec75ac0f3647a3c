// One client call of `Inference.Generate`: its answer stream, its outbox, its end. An edge object of gRPC's callback
// API.
//
// Promises: one write is in flight; a client that reads too slowly costs `outbox_bytes` at most and then gets
// RESOURCE_EXHAUSTED; the call finishes exactly once; the core hears of a client that went away in every state.
#pragma once

#include <grpcpp/alarm.h>
#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "router/answer_stream.h"
#include "router/events.h"

namespace sluice::router {

struct CallLimits {
  size_t outbox_bytes = size_t{1} << 20;
  absl::Duration slow_grace = absl::Seconds(5);  // from RESOURCE_EXHAUSTED until the connection's stream is reset
};

class GenerateCall final : public grpc::ServerWriteReactor<grpc::ByteBuffer>,
                           public std::enable_shared_from_this<GenerateCall> {
 public:
  struct Owner {
    std::function<void(Event)> post;
    std::function<void(uint64_t call)> ended;  // may destroy the call
  };

  // `owner` must outlive the call.
  GenerateCall(const Owner* owner, uint64_t call, grpc::CallbackServerContext* context, const CallLimits& limits)
      : owner_(owner), call_(call), context_(context), limits_(limits) {}

  // Either Accept or Refuse, once, before anything else.
  void Accept(AnswerStream answer);
  void Refuse(const absl::Status& status);

  // From the core's thread.
  void OnTokens(const ClientTokens& event);
  void OnEnd(const ClientEnd& event);

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  void Push(const pb::GenerateResponse& response) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void GiveUpOnSlowClient() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Continue() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Owner* const owner_;
  const uint64_t call_;
  grpc::CallbackServerContext* const context_;  // until OnDone
  const CallLimits limits_;

  absl::Mutex mutex_;
  std::optional<AnswerStream> answer_ ABSL_GUARDED_BY(mutex_);
  std::deque<grpc::ByteBuffer> outbox_ ABSL_GUARDED_BY(mutex_);
  size_t outbox_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  grpc::ByteBuffer in_flight_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<grpc::Status> final_ ABSL_GUARDED_BY(mutex_);  // once set, nothing more is pushed
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
  std::unique_ptr<grpc::Alarm> slow_alarm_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice::router
