// SIGTERM and SIGINT as something to wait for, without work in signal handlers.
//
// Make it before the first thread: threads inherit the blocked signals, and a thread of its own takes them. Until
// MarkReady a signal ends the process at once (there is nothing to clean up while a model loads). At most one at a
// time.
#pragma once

#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace sluice::worker {

class ShutdownSignal {
 public:
  ShutdownSignal();
  ~ShutdownSignal();

  void MarkReady();

  // As if a signal had come. Any thread.
  void Trigger();

  // The signal's number, or 0 after Trigger.
  int Wait();

 private:
  void Run();

  absl::Mutex mutex_;
  bool ready_ ABSL_GUARDED_BY(mutex_) = false;
  bool came_ ABSL_GUARDED_BY(mutex_) = false;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  int signal_ ABSL_GUARDED_BY(mutex_) = 0;
  std::thread thread_;
};

}  // namespace sluice::worker
