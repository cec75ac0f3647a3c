// One client call of `Inference.Generate`: its outbox and its end. An edge object of gRPC's callback API.
//
// Promises: one write is in flight; a client that reads too slowly costs `outbox_bytes` at most and then gets
// RESOURCE_EXHAUSTED; the call finishes exactly once; `calls` hears of a client that went away in every state. It lives
// until gRPC is done with it.
#pragma once

#include <grpcpp/alarm.h>
#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "router/call_sink.h"
#include "router/calls.h"

namespace sluice::router {

struct CallLimits {
  size_t outbox_bytes = size_t{1} << 20;
  absl::Duration slow_grace = absl::Seconds(5);  // from "reads too slowly" until the connection or its stream is reset
};

class GenerateCall final : public grpc::ServerWriteReactor<grpc::ByteBuffer>,
                           public CallSink,
                           public std::enable_shared_from_this<GenerateCall> {
 public:
  // A call that `calls`, which must outlive it, knows. gRPC must learn of it: return `Reactor()` from the handler.
  static std::shared_ptr<GenerateCall> Make(Calls* calls, grpc::CallbackServerContext* context,
                                            const CallLimits& limits);

  grpc::ServerWriteReactor<grpc::ByteBuffer>* Reactor() { return this; }
  uint64_t id() const { return id_; }

  void Refuse(const absl::Status& status);  // instead of an answer

  bool Send(std::vector<pb::GenerateResponse> responses) override;
  void End(const absl::Status& status, absl::Duration retry_after) override;

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  GenerateCall(Calls* calls, grpc::CallbackServerContext* context, const CallLimits& limits)
      : calls_(calls), context_(context), limits_(limits) {}

  void GiveUpOnSlowClient() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Drop() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Continue() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Calls* const calls_;
  uint64_t id_ = 0;
  grpc::CallbackServerContext* const context_;  // until OnDone
  const CallLimits limits_;

  absl::Mutex mutex_;
  std::deque<grpc::ByteBuffer> outbox_ ABSL_GUARDED_BY(mutex_);
  size_t outbox_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t step_bytes_ ABSL_GUARDED_BY(mutex_) =
      0;  // of the step that found the outbox empty: its size is not the client's fault
  grpc::ByteBuffer in_flight_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<grpc::Status> final_ ABSL_GUARDED_BY(mutex_);  // once set, nothing more is taken
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
  std::unique_ptr<grpc::Alarm> slow_alarm_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<GenerateCall> self_;  // until OnDone
};

}  // namespace sluice::router
