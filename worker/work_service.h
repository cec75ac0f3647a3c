// `Worker.Work` over gRPC: moves messages between the routers' streams and the engine loop, and decides nothing.
//
// Promises: callbacks only enqueue; one write in flight a stream; what waits is merged and bounded (Outbox), and a
// stream beyond the bound is given up; reading stops while the engine loop is behind; when a stream ends, for whatever
// reason, the loop hears of it once, after the stream's last message.
#pragma once

#include <cstddef>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "proto/worker.grpc.pb.h"
#include "worker/engine_loop.h"

namespace sluice::worker {

struct StreamLimits {
  size_t merge_bytes = size_t{1} << 20;  // of one message; gRPC's default limit for a receiver is 4 MiB
  size_t outbox_bytes = size_t{32} << 20;
  size_t unconsumed_messages = 128;  // read, but not yet taken by the engine loop
};

class WorkService final : public v1::Worker::CallbackService {
 public:
  // `loop` must outlive every stream, so the server that this service is registered with.
  explicit WorkService(EngineLoop& loop, const StreamLimits& limits = {}) : loop_(loop), limits_(limits) {}

  grpc::ServerBidiReactor<v1::RouterMessage, v1::WorkerMessage>* Work(grpc::CallbackServerContext* context) override;

  // Waits until all streams have ended, what the loop sent before included; false if that took longer.
  bool AwaitEnds(absl::Duration timeout);

 private:
  bool NoStreams() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return streams_ == 0; }

  EngineLoop& loop_;
  const StreamLimits limits_;
  absl::Mutex mutex_;
  int streams_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace sluice::worker
