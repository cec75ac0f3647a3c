// The engine thread's latest report, for the threads that send it. Hands out the sequence numbers, so that of two
// reports the one with the higher number is never the older one.
#pragma once

#include <cstdint>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "proto/worker.pb.h"

namespace sluice::worker {

class ReportBoard {
 public:
  void Publish(v1::WorkerReport report) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    latest_ = std::move(report);
  }

  // A copy with its own number.
  v1::WorkerReport Take() ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    latest_.set_sequence(++sequence_);
    return latest_;
  }

 private:
  absl::Mutex mutex_;
  uint64_t sequence_ ABSL_GUARDED_BY(mutex_) = 0;
  v1::WorkerReport latest_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice::worker
