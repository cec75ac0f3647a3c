// What kernels use of the toolkit: CUB's block primitives, cooperative groups, printf, assert, half and fp8 types.
#include "tests/host_cuda/kernels/library.h"

#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cassert>
#include <cstdio>
#include <cub/cub.cuh>

namespace cg = cooperative_groups;

extern "C" __global__ void __launch_bounds__(kThreads) CubBlock(const unsigned* in, unsigned* sum, unsigned* scan, unsigned* sorted) {
  using Reduce = cub::BlockReduce<unsigned, kThreads>;
  using Scan = cub::BlockScan<unsigned, kThreads>;
  using Sort = cub::BlockRadixSort<unsigned, kThreads, kItems>;
  __shared__ union {
    typename Reduce::TempStorage reduce;
    typename Scan::TempStorage scan;
    typename Sort::TempStorage sort;
  } shared;
  unsigned items[kItems];
  for (int i = 0; i < kItems; ++i) items[i] = in[threadIdx.x * kItems + i];
  const unsigned total = Reduce(shared.reduce).Sum(items);
  if (threadIdx.x == 0) *sum = total;
  __syncthreads();
  unsigned before[kItems];
  Scan(shared.scan).ExclusiveSum(items, before);
  __syncthreads();
  Sort(shared.sort).Sort(items);
  for (int i = 0; i < kItems; ++i) {
    scan[threadIdx.x * kItems + i] = before[i];
    sorted[threadIdx.x * kItems + i] = items[i];
  }
}

extern "C" __global__ void Groups(const int* in, int* tile_sums, int* block_any) {
  const cg::thread_block block = cg::this_thread_block();
  const auto tile = cg::tiled_partition<8>(block);
  const int v = in[block.thread_rank()];
  const int sum = cg::reduce(tile, v, cg::plus<int>());
  const bool any_three = tile.any(v == 3);
  if (tile.thread_rank() == 0) tile_sums[block.thread_rank() / 8] = sum + (any_three ? 1 : 0);
  block.sync();
  const int any = __syncthreads_or(v > 1000);
  if (block.thread_rank() == 0) *block_any = any;
}

extern "C" __global__ void Print(int n) {
  assert(n != 7);
  if (threadIdx.x == 0) printf("n %d, half %f, text %s, %llu%%\n", n, n / 2.0, "abc", 1ull << 40);
}

extern "C" __global__ void Halves(const float* in, float* out, int n) {
  const int i = threadIdx.x;
  if (i >= n) return;
  const __half h = __float2half(in[i]);
  const __half2 two = __hfma2(__half2{h, h}, __half2{h, h}, __float2half2_rn(1.f));
  const __nv_fp8_e4m3 small(in[i]);
  out[3 * i] = __low2float(two);
  out[3 * i + 1] = float(small);
  out[3 * i + 2] = __half2float(hexp(h));
}
