// Looks after a communicator while operations of it are under way: when NCCL or the caller finds a rank lost, or a wait
// takes too long, it aborts the communicator, so that whoever waits for the stream goes on, and finds the reason in the
// communicator's status.
//
// A thread of its own, asleep while nothing is awaited.
#pragma once

#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "kernels/cuda/nccl/communicator.h"

namespace sluice::kernels::cuda {

class Watchdog {
 public:
  // `communicator` outlives it.
  explicit Watchdog(Communicator* communicator);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // While it lives, what was issued is awaited: for `timeout` at most, as `what`.
  class Wait {
   public:
    Wait(Watchdog* watchdog, absl::string_view what, absl::Duration timeout);
    ~Wait();
    Wait(const Wait&) = delete;
    Wait& operator=(const Wait&) = delete;

   private:
    Watchdog* const watchdog_;
  };

 private:
  void Run();

  Communicator* const communicator_;
  absl::Mutex mutex_;
  absl::CondVar changed_;
  bool awaited_ ABSL_GUARDED_BY(mutex_) = false;
  bool leaving_ ABSL_GUARDED_BY(mutex_) = false;
  std::string what_ ABSL_GUARDED_BY(mutex_);
  absl::Duration timeout_ ABSL_GUARDED_BY(mutex_);
  absl::Time end_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace sluice::kernels::cuda
