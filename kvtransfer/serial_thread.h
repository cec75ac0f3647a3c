// One thread that runs what is posted to it, in order, and a tick at a fixed interval. The owner of everything that an
// endpoint's state machines touch: gRPC and channel callbacks only post.
//
// Its clock leaves out the time in which the thread stood still (a stopped process, a machine that swaps, a task that
// took long), so that a peer is never blamed for a silence that was our own; and what was posted during it is run
// before the next tick.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace sluice::kvtransfer {

class SerialThread {
 public:
  using Task = std::function<void()>;
  using Ticker = std::function<void(absl::Time now)>;

  SerialThread(absl::Duration tick_interval, Ticker tick);
  ~SerialThread();  // Stop()

  // Never goes faster than time, and slower only by stalls. Any thread.
  absl::Time Now() const { return absl::Now() - absl::Nanoseconds(stalled_ns_.load(std::memory_order_relaxed)); }

  // Tasks posted after Stop are dropped.
  void Post(Task task);

  // Runs what was posted before, then ends the thread. Not from a task. Idempotent.
  void Stop();

 private:
  void Run();
  bool HasWork() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopping_ || !tasks_.empty(); }

  const absl::Duration tick_interval_;
  const Ticker tick_;
  absl::Mutex mutex_;
  std::vector<Task> tasks_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::atomic<int64_t> stalled_ns_{0};
  std::thread thread_;
};

}  // namespace sluice::kvtransfer
