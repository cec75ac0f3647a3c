#include "worker/step_thread.h"

#include <utility>

#include "worker/monotonic_clock.h"

namespace sluice::worker {

StepThread::StepThread(EnginePort& engine, std::function<void()> on_done)
    : engine_(engine), on_done_(std::move(on_done)), thread_([this] { Run(); }) {}

StepThread::~StepThread() {
  Stop();
}

void StepThread::Stop() {
  {
    absl::MutexLock lock(&mutex_);
    ending_ = true;
  }
  if (thread_.joinable()) thread_.join();
}

void StepThread::Submit(std::unique_ptr<engine::StepWork> work) {
  absl::MutexLock lock(&mutex_);
  orders_.push_back(std::move(work));
}

std::optional<StepThread::Done> StepThread::Take() {
  absl::MutexLock lock(&mutex_);
  if (done_.empty()) return std::nullopt;
  Done done = std::move(done_.front());
  done_.pop_front();
  return done;
}

absl::Time StepThread::running_since() const {
  absl::MutexLock lock(&mutex_);
  return running_since_;
}

void StepThread::Run() {
  for (;;) {
    Done done;
    absl::Time begin;
    {
      absl::MutexLock lock(&mutex_);
      running_since_ = absl::InfiniteFuture();
      mutex_.Await(absl::Condition(this, &StepThread::HasOrders));
      if (ending_) return;
      done.work = std::move(orders_.front());
      orders_.pop_front();
      begin = running_since_ = MonotonicNow();
    }
    done.status = engine_.Execute(*done.work);
    done.at = MonotonicNow();
    done.took = done.at - begin;
    {
      absl::MutexLock lock(&mutex_);
      done_.push_back(std::move(done));
    }
    on_done_();
  }
}

}  // namespace sluice::worker
