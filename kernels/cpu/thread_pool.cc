#include "kernels/cpu/thread_pool.h"

#include <immintrin.h>
#include <sched.h>
#include <sys/sysinfo.h>

#include <algorithm>

#include "kernels/cpu/own_cores.h"

namespace sluice::kernels::cpu {
namespace {

// About 30 µs: longer than the gaps inside a step, shorter than a time slice.
constexpr int kSpins = 1000;

// Waits until `value` is not `old`: spins, then sleeps.
template <class T>
T AwaitChange(const std::atomic<T>& value, T old) {
  for (int i = 0; i < kSpins; ++i) {
    const T now = value.load(std::memory_order_acquire);
    if (now != old) return now;
    _mm_pause();
  }
  T now = value.load(std::memory_order_acquire);
  while (now == old) {
    value.wait(old, std::memory_order_acquire);
    now = value.load(std::memory_order_acquire);
  }
  return now;
}

constexpr int kAnyCore = -1;

std::vector<int> CoresOfProcess(int threads) {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return {};
  return OwnCores(allowed, threads, get_nprocs_conf());
}

// At best: a core that went away leaves the thread where it may be.
void StayOn(int core) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(core, &one);
  (void)sched_setaffinity(0, sizeof one, &one);
}

}  // namespace

ThreadPool::ThreadPool(int threads) {
  const std::vector<int> cores = CoresOfProcess(threads);
  for (int i = 1; i < threads; ++i) {
    const int core = cores.empty() ? kAnyCore : cores[size_t(i)];
    workers_.emplace_back([this, i, core] { Work(i, core); });
  }
}

ThreadPool::~ThreadPool() {
  stop_.store(true, std::memory_order_relaxed);
  round_.fetch_add(1, std::memory_order_release);
  round_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::Run(absl::FunctionRef<void(int)> fn) {
  if (workers_.empty()) return fn(0);
  job_ = &fn;
  busy_.store(int(workers_.size()), std::memory_order_relaxed);
  round_.fetch_add(1, std::memory_order_release);
  round_.notify_all();
  fn(0);
  for (int busy = busy_.load(std::memory_order_acquire); busy != 0;) busy = AwaitChange(busy_, busy);
}

void ThreadPool::Work(int index, int core) {
  if (core != kAnyCore) StayOn(core);
  uint32_t seen = 0;
  for (;;) {
    seen = AwaitChange(round_, seen);
    if (stop_.load(std::memory_order_relaxed)) return;
    (*job_)(index);
    if (busy_.fetch_sub(1, std::memory_order_acq_rel) == 1) busy_.notify_one();
  }
}

void ThreadPool::RunRanges(int64_t n, int64_t grain, absl::FunctionRef<void(int64_t, int64_t, int)> fn) {
  const int64_t grains = (n + grain - 1) / grain;
  const int64_t parts = std::min<int64_t>(threads(), grains);
  if (parts <= 1) {
    if (n > 0) fn(0, n, 0);
    return;
  }
  Run([&](int index) {
    if (index >= parts) return;
    const int64_t begin = grains * index / parts * grain, end = std::min(n, grains * (index + 1) / parts * grain);
    if (begin < end) fn(begin, end, index);
  });
}

}  // namespace sluice::kernels::cpu
