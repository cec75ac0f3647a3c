// One thread that runs what is posted to it, in order, and a tick at a fixed interval (one that is very late is left
// out once, so that what came during a stall is run first). The owner of everything that an endpoint's state machines
// touch: gRPC and channel callbacks only post.
#pragma once

#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace sluice::kvtransfer {

class SerialThread {
 public:
  using Task = std::function<void()>;

  SerialThread(absl::Duration tick_interval, Task tick);
  ~SerialThread();  // Stop()

  // Tasks posted after Stop are dropped.
  void Post(Task task);

  // Runs what was posted before, then ends the thread. Not from a task. Idempotent.
  void Stop();

 private:
  void Run();
  bool HasWork() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopping_ || !tasks_.empty(); }

  const absl::Duration tick_interval_;
  const Task tick_;
  absl::Mutex mutex_;
  std::vector<Task> tasks_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace sluice::kvtransfer
