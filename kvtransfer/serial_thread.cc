#include "kvtransfer/serial_thread.h"

#include <utility>

#include "absl/time/clock.h"

namespace sluice::kvtransfer {
namespace {

// A tick that is later than this was kept from running.
constexpr absl::Duration kStall = absl::Milliseconds(200);

}  // namespace

SerialThread::SerialThread(absl::Duration tick_interval, Ticker tick)
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
    const absl::Duration late = now - next_tick;
    next_tick = now + tick_interval_;
    if (late > kStall) {
      stalled_ns_.fetch_add(absl::ToInt64Nanoseconds(late), std::memory_order_relaxed);
    } else {
      tick_(Now());
    }
  }
}

}  // namespace sluice::kvtransfer
