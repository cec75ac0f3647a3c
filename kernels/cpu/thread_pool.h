// A pool of threads that run one function together: a static split, no queue.
//
// Run(fn) calls fn(0) ... fn(threads - 1), fn(0) on the caller, and returns when all have returned. What each index
// does must not depend on which thread runs it; the kernels split over outputs, so results never depend on the thread
// count.
//
// Workers spin for a few tens of microseconds after a run, since a step is a train of short runs, then sleep on a
// futex. A pool of one thread starts none and calls fn directly. One caller at a time.
//
// Where the process was confined to exactly as many cores as the pool has threads (worker option --cpus, taskset), each
// worker stays on a core of its own. Elsewhere the system places them: a core may be shared with others.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"

namespace sluice::kernels::cpu {

class ThreadPool {
 public:
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return int(workers_.size()) + 1; }
  void Run(absl::FunctionRef<void(int index)> fn);

  // Run over [0, n) cut into contiguous ranges whose borders are multiples of `grain`; fn(begin, end, thread index).
  void RunRanges(int64_t n, int64_t grain, absl::FunctionRef<void(int64_t begin, int64_t end, int index)> fn);

 private:
  void Work(int index, int core);

  const absl::FunctionRef<void(int)>* job_ = nullptr;  // of the current run; published by round_
  alignas(64) std::atomic<uint32_t> round_{0};         // counts runs
  alignas(64) std::atomic<int> busy_{0};               // workers still in the current run
  std::atomic<bool> stop_{false};
  std::vector<std::thread> workers_;
};

}  // namespace sluice::kernels::cpu
