// Scratch memory of each thread of a pool, as large as the widest row and head that were asked for.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "kernels/cpu/host_memory.h"

namespace sluice::kernels::cpu {

class ThreadScratch {
 public:
  // How many floats a thread needs for rows of `cols` and heads of `head_dim`.
  using Floats = int64_t (*)(int64_t cols, int64_t head_dim);

  ThreadScratch(int threads, Floats floats) : floats_(floats), memory_(size_t(threads)) {}

  // Grows to at least these sizes; what was in it is gone then. RESOURCE_EXHAUSTED without memory.
  absl::Status Hold(int64_t cols, int64_t head_dim);

  // 64-byte aligned.
  float* of(int thread) const { return memory_[size_t(thread)].floats(); }

 private:
  const Floats floats_;
  int64_t cols_ = 0, head_dim_ = 0;
  std::vector<HostMemory> memory_;  // [threads]
};

}  // namespace sluice::kernels::cpu
