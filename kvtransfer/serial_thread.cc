#include "kvtransfer/serial_thread.h"

#include <utility>

#include "absl/time/clock.h"

namespace sluice::kvtransfer {
namespace {

constexpr absl::Duration kStall = absl::Milliseconds(200);

}  // namespace

SerialThread::SerialThread(absl::Duration tick_interval, Task tick)
    : tick_interval_(tick_interval), tick_(std::move(tick)), thread_([this] { Run(); }) {}

SerialThread::~SerialThread() {
  Stop();
}

void SerialThread::Post(Task task) {
  absl::MutexLock lock(&mutex_);
  if (!stopping_) tasks_.push_back(std::move(task));
}

void SerialThread::Stop() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  if (thread_.joinable()) thread_.join();
}

void SerialThread::Run() {
  absl::Time next_tick = absl::Now() + tick_interval_;
  bool skipped = false;
  while (true) {
    std::vector<Task> tasks;
    bool stop = false;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.AwaitWithDeadline(absl::Condition(this, &SerialThread::HasWork), next_tick);
      tasks.swap(tasks_);
      stop = stopping_;
    }
    for (const Task& task : tasks) task();
    if (stop) return;
    const absl::Time now = absl::Now();
    if (now < next_tick) continue;
    // After a stall of the whole process what the peers have sent meanwhile comes first: a tick would blame them.
    const bool stalled = now - next_tick > kStall && !std::exchange(skipped, true);
    if (!stalled) {
      tick_();
      skipped = false;
    }
    next_tick = absl::Now() + tick_interval_;
  }
}

}  // namespace sluice::kvtransfer
