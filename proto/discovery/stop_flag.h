// How a thread that works and waits in turns is stopped, and the clock that it goes by.
#pragma once

#include <chrono>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace sluice::discovery {

// Since some moment; it does not jump with the date.
inline absl::Time Now() {
  return absl::UnixEpoch() + absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
}

class StopFlag {
 public:
  void Stop() {
    absl::MutexLock lock(&mutex_);
    stopped_ = true;
  }
  bool stopped() {
    absl::MutexLock lock(&mutex_);
    return stopped_;
  }
  void WaitUntil(absl::Time until) {
    absl::MutexLock lock(&mutex_);
    mutex_.AwaitWithTimeout(absl::Condition(&stopped_), until - Now());
  }

 private:
  absl::Mutex mutex_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace sluice::discovery
