// Health is forward progress: notices when the engine loop stays in one turn for too long, and when it comes forward
// again. A step cannot be interrupted, so the limit is far above the longest one.
#pragma once

#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace sluice::worker {

class ProgressWatch {
 public:
  // `turn_age` is asked a few times within each `limit`; `on_change` is called with true when it is longer than that,
  // with false when it no longer is. Both on the watch's own thread.
  ProgressWatch(absl::Duration limit, std::function<absl::Duration()> turn_age, std::function<void(bool)> on_change);
  ~ProgressWatch();  // stops

  void Start();
  void Stop();  // idempotent; no call follows

 private:
  void Run();

  const absl::Duration limit_;
  const std::function<absl::Duration()> turn_age_;
  const std::function<void(bool)> on_change_;
  absl::Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace sluice::worker
