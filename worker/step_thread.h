// Executes the steps of one engine in a thread of its own, in order, so that messages are answered and the next step is
// planned meanwhile.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "worker/engine_port.h"

namespace sluice::worker {

class StepThread {
 public:
  struct Done {
    std::unique_ptr<engine::StepWork> work;
    absl::Status status;
    absl::Time at;
    absl::Duration took;
  };

  // `on_done` is called in the thread whenever there is something to take. `engine` must outlive it.
  StepThread(EnginePort& engine, std::function<void()> on_done);
  ~StepThread();  // stops

  // Waits for the step under way; those behind it are dropped. Idempotent.
  void Stop();

  void Submit(std::unique_ptr<engine::StepWork> work);

  // The oldest executed step that was not taken.
  std::optional<Done> Take();

  // Since when the step under way runs; InfiniteFuture if none does. Any thread.
  absl::Time running_since() const;

 private:
  void Run();
  bool HasOrders() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return ending_ || !orders_.empty(); }

  EnginePort& engine_;
  const std::function<void()> on_done_;
  mutable absl::Mutex mutex_;
  std::deque<std::unique_ptr<engine::StepWork>> orders_ ABSL_GUARDED_BY(mutex_);
  std::deque<Done> done_ ABSL_GUARDED_BY(mutex_);
  absl::Time running_since_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace sluice::worker
