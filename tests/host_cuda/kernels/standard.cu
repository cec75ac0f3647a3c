// What kernels use of CUDA's C++ standard library and of cooperative groups beyond a block's barrier: mbarriers, pipelines,
// copies that a group waits for, atomics with orders, and the heap of the device.
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>

#include <cassert>
#include <cuda/atomic>
#include <cuda/barrier>
#include <cuda/pipeline>

#include "tests/host_cuda/kernels/standard.h"

namespace cg = cooperative_groups;

// A copy that a barrier waits for; then two more phases of it.
extern "C" __global__ void BarrierCopy(const int* in, int* out) {
#pragma nv_diag_suppress static_var_with_dynamic_init
  __shared__ cuda::barrier<cuda::thread_scope_block> barrier;
  __shared__ int buffer[kStandardThreads];
  const cg::thread_block block = cg::this_thread_block();
  const int i = static_cast<int>(block.thread_rank());
  if (i == 0) init(&barrier, kStandardThreads);
  block.sync();
  cuda::memcpy_async(block, buffer, in, cuda::aligned_size_t<16>(sizeof buffer), barrier);
  barrier.arrive_and_wait();
  const int opposite = buffer[kStandardThreads - 1 - i];
  barrier.wait(barrier.arrive());
  buffer[i] = opposite + 1;
  barrier.wait(barrier.arrive());
  out[i] = buffer[(i + 1) % kStandardThreads];
}

// Two stages in flight.
extern "C" __global__ void Pipeline(const int* in, int* out, int rounds) {
  __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
  __shared__ int buffer[2][kStandardThreads];
  const cg::thread_block block = cg::this_thread_block();
  const int i = static_cast<int>(block.thread_rank());
  auto pipeline = cuda::make_pipeline(block, &state);
  const auto fetch = [&](int round) {
    pipeline.producer_acquire();
    cuda::memcpy_async(block, buffer[round % 2], in + round * kStandardThreads, sizeof(int) * kStandardThreads, pipeline);
    pipeline.producer_commit();
  };
  fetch(0);
  for (int round = 0; round < rounds; ++round) {
    if (round + 1 < rounds) fetch(round + 1);
    pipeline.consumer_wait();
    out[round * kStandardThreads + i] = buffer[round % 2][kStandardThreads - 1 - i];
    pipeline.consumer_release();
  }
}

extern "C" __global__ void GroupCopy(const int* in, int* out, int* sizes) {
  __shared__ int buffer[kStandardThreads];
  const cg::thread_block block = cg::this_thread_block();
  const int i = static_cast<int>(block.thread_rank());
  cg::memcpy_async(block, buffer, in, sizeof buffer);
  cg::wait(block);
  const auto warp = cg::tiled_partition<32>(block);
  out[i] = buffer[kStandardThreads - 1 - i] + warp.shfl_xor(buffer[i], 3);
  sizes[i] = static_cast<int>(cg::labeled_partition(warp, i % 3).size());
}

// Each of two warps adds; the last to come reads what all have written, by acquire and release.
extern "C" __global__ void Atomics(cuda::atomic<int, cuda::thread_scope_device>* counter,
                                   cuda::atomic<long long, cuda::thread_scope_block>* most, int* values, int* sum) {
  const int i = static_cast<int>(threadIdx.x);
  values[i] = 3 * i;
  most->fetch_max(i, cuda::std::memory_order_relaxed);
  if (counter->fetch_add(1, cuda::std::memory_order_acq_rel) != kStandardThreads - 1) return;
  int total = 0;
  for (int j = 0; j < kStandardThreads; ++j) total += values[j];
  *sum = total;
  int expected = kStandardThreads;
  counter->compare_exchange_strong(expected, -7);
}

// what: 0 all is well; 1 writes behind its memory; 2 frees it twice; 3 frees what is none; 4 asks for too much.
extern "C" __global__ void Heap(int* out, int what) {
  const int i = static_cast<int>(threadIdx.x);
  int* const mine = static_cast<int*>(malloc(sizeof(int) * 8));
  assert(mine != nullptr);
  out[2 * i] = mine[7];  // nothing has been written yet
  for (int j = 0; j < 8 + (what == 1 ? 1 : 0); ++j) mine[j] = i + j;
  int* const more = new int[4]{1, 2, 3, 4};
  out[2 * i + 1] = mine[7] + more[3];
  delete[] more;
  free(mine);
  if (what == 2) free(mine);
  if (what == 3) free(out);
  if (what == 4) out[2 * i] = malloc(size_t{1} << 30) == nullptr ? 1 : 0;
}

extern "C" __global__ void Asserts(int n) {
  assert(n < 3);
}

cudaError_t LaunchAsserts(int n) {
  Asserts<<<1, 1>>>(n);
  return cudaGetLastError();
}
