#include "worker/shutdown_signal.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

namespace sluice::worker {
namespace {

constexpr int kWakeUp = SIGUSR1;  // ends our own wait

sigset_t Signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  sigaddset(&set, kWakeUp);
  return set;
}

}  // namespace

ShutdownSignal::ShutdownSignal() {
  const sigset_t set = Signals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  signal(SIGPIPE, SIG_IGN);
  thread_ = std::thread([this] { Run(); });
}

ShutdownSignal::~ShutdownSignal() {
  {
    absl::MutexLock lock(&mutex_);
    ending_ = true;
  }
  pthread_kill(thread_.native_handle(), kWakeUp);
  thread_.join();
}

void ShutdownSignal::MarkReady() {
  absl::MutexLock lock(&mutex_);
  ready_ = true;
}

void ShutdownSignal::Trigger() {
  absl::MutexLock lock(&mutex_);
  came_ = true;
}

int ShutdownSignal::Wait() {
  absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(&came_));
  return signal_;
}

void ShutdownSignal::Run() {
  const sigset_t set = Signals();
  while (true) {
    int number = 0;
    if (sigwait(&set, &number) != 0) continue;
    absl::MutexLock lock(&mutex_);
    if (ending_) return;
    if (number == kWakeUp) continue;
    if (!ready_) _exit(128 + number);
    if (!came_) signal_ = number;
    came_ = true;
  }
}

}  // namespace sluice::worker
