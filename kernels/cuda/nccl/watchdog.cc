#include "kernels/cuda/nccl/watchdog.h"

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace sluice::kernels::cuda {
namespace {

constexpr absl::Duration kPeriod = absl::Milliseconds(20);

}  // namespace

Watchdog::Watchdog(Communicator* communicator) : communicator_(communicator), thread_([this] { Run(); }) {}

Watchdog::~Watchdog() {
  {
    absl::MutexLock lock(&mutex_);
    leaving_ = true;
    changed_.Signal();
  }
  thread_.join();
}

Watchdog::Wait::Wait(Watchdog* watchdog, absl::string_view what, absl::Duration timeout) : watchdog_(watchdog) {
  absl::MutexLock lock(&watchdog->mutex_);
  watchdog->awaited_ = true;
  watchdog->what_ = std::string(what);
  watchdog->timeout_ = timeout;
  watchdog->end_ = absl::Now() + timeout;
  watchdog->changed_.Signal();
}

Watchdog::Wait::~Wait() {
  absl::MutexLock lock(&watchdog_->mutex_);
  watchdog_->awaited_ = false;
}

void Watchdog::Run() {
  absl::MutexLock lock(&mutex_);
  while (!leaving_) {
    if (!awaited_) {
      changed_.Wait(&mutex_);
      continue;
    }
    changed_.WaitWithTimeout(&mutex_, kPeriod);
    if (!awaited_ || leaving_) continue;
    // Not under the lock: an abort may take a while, and nobody else may change what is awaited before it is over,
    // since it is what the waiting thread waits for.
    const bool late = absl::Now() > end_;
    const absl::Status too_late = absl::DeadlineExceededError(
        absl::StrCat(communicator_->Named(absl::StrCat("waited ", absl::FormatDuration(timeout_), " for ", what_)),
                     "; a rank of it stands still"));
    mutex_.Unlock();
    const absl::Status status = communicator_->Check();
    if (status.ok() && late) communicator_->Abort(too_late);
    mutex_.Lock();
    if (!status.ok() || late) awaited_ = false;
  }
}

}  // namespace sluice::kernels::cuda
