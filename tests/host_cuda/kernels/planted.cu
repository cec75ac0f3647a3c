// Kernels that are right where bug is 0, and wrong in one known way each otherwise: what planted_test.cc must see caught.
#include "tests/host_cuda/kernels/planted.h"

#include <cuda_bf16.h>

namespace {

constexpr int kThreads = 96;

__device__ float WarpSum(float v) {
  for (int distance = 16; distance > 0; distance /= 2) v += __shfl_xor_sync(0xffffffffu, v, distance);
  return v;
}

}  // namespace

// Each block's sum of its kThreads numbers, by warps and shared memory.
extern "C" __global__ void __launch_bounds__(kThreads) BlockSum(const float* in, float* out, int bug) {
  __shared__ float partial[kThreads / 32];
  __shared__ float total;
  const int thread = threadIdx.x, lane = thread % 32;
  if (bug == kEarlyExit && thread >= 64) return;
  float v = in[blockIdx.x * kThreads + thread];
  if (bug == kHalfWarp && lane % 2 != 0) {
    v += __shfl_xor_sync(0xffffffffu, v, 1);
  }
  v = WarpSum(v);
  if (lane == 0) partial[thread / 32] = v;
  if (bug != kNoBarrier) __syncthreads();
  if (thread == 0) {
    float sum = 0;
    const int count = kThreads / 32 + (bug == kSharedOverrun ? 1 : 0);
    if (bug == kSharedOverrun) partial[count - 1] = 0;
    for (int i = 0; i < count; ++i) sum += partial[i];
    if (bug != kUninitialised) total = sum;
  }
  __syncthreads();
  if (thread == 0) out[blockIdx.x] = total;
  if (bug == kGlobalOverrun && thread == 0 && blockIdx.x == 0) out[gridDim.x] = 1;
}

// Rounds of: load a tile by cp.async, double buffered, and let every thread read another one's element of it.
extern "C" __global__ void __launch_bounds__(kThreads) Tiles(const float* in, float* out, int rounds, int bug) {
  __shared__ __align__(16) float tile[2][kThreads];
  const int thread = threadIdx.x;
  const auto load = [&](int round) {
    const unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(&tile[round % 2][thread]));
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(in + round * kThreads + thread) : "memory");
    asm volatile("cp.async.commit_group;" ::: "memory");
  };
  load(0);
  float sum = 0;
  for (int round = 0; round < rounds; ++round) {
    if (round + 1 < rounds) {
      load(round + 1);
      if (bug != kNoWait) asm volatile("cp.async.wait_group 1;" ::: "memory");
    } else if (bug != kNoWait) {
      asm volatile("cp.async.wait_group 0;" ::: "memory");
    }
    __syncthreads();
    sum += tile[round % 2][(thread + 33) % kThreads];
    if (bug != kNoBarrierAfterRead) __syncthreads();
  }
  out[thread] = sum;
}

// C = A * B of 16x16 and 16x8 by one mma.sync.
extern "C" __global__ void OneMma(const __nv_bfloat16* a, const __nv_bfloat16* b, float* c, int bug) {
  const int g = threadIdx.x / 4, t = threadIdx.x % 4;
  const auto pair = [](__nv_bfloat16 x, __nv_bfloat16 y) {
    __nv_bfloat162 both{x, y};
    return *reinterpret_cast<unsigned*>(&both);
  };
  const auto from_a = [&](int row, int column) { return pair(a[row * 16 + column], a[row * 16 + column + 1]); };
  const auto from_b = [&](int row, int column) { return pair(b[row * 8 + column], b[(row + 1) * 8 + column]); };
  unsigned fa[4] = {from_a(g, 2 * t), from_a(g + 8, 2 * t), from_a(g, 2 * t + 8), from_a(g + 8, 2 * t + 8)};
  if (bug == kFragment) {
    const unsigned swapped = fa[1];
    fa[1] = fa[2];
    fa[2] = swapped;
  }
  const unsigned fb[2] = {from_b(2 * t, g), from_b(2 * t + 8, g)};
  float d[4] = {};
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(fa[0]), "r"(fa[1]), "r"(fa[2]), "r"(fa[3]), "r"(fb[0]), "r"(fb[1]));
  for (int i = 0; i < 4; ++i) c[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = d[i];
}

// Thread 32 waits for a number that thread 0 hands over with a flag.
extern "C" __global__ void HandOver(float* out, int bug) {
  __shared__ float number;
  __shared__ int flag;
  if (threadIdx.x == 0) flag = 0;
  __syncthreads();
  if (threadIdx.x == 0) {
    number = 42;
    if (bug != kNoFence) __threadfence_block();
    *const_cast<volatile int*>(&flag) = 1;
  } else if (threadIdx.x == 32) {
    while (*const_cast<volatile int*>(&flag) == 0) {
    }
    if (bug != kNoFence) __threadfence_block();
    out[0] = number;
  }
}

cudaError_t LaunchBlockSum(const float* in, float* out, int blocks, cudaStream_t stream) {
  BlockSum<<<blocks, kThreads, 0, stream>>>(in, out, kNone);
  return cudaGetLastError();
}
