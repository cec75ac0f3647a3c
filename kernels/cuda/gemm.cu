#include "kernels/cuda/async_copy.cuh"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/mma.cuh"

namespace sluice::kernels::cuda {
namespace {

constexpr int kTile = 64;   // rows of A and of W in a block's tile of C
constexpr int kDepth = 32;  // of k, in a stage
constexpr int kWarps = 4;   // two by two, each 32 x 32 of C
constexpr int kThreads = kWarps * 32;
constexpr int kStages = 2;
constexpr int kStride = kDepth + 8;  // 16 bytes of padding: eight rows lie in different banks

struct Stage {
  __nv_bfloat16 a[kTile][kStride], w[kTile][kStride];
};

// Rows of one operand; what lies outside becomes zeros.
__device__ void LoadOperand(__nv_bfloat16 (&to)[kTile][kStride], const __nv_bfloat16* from, int first_row, int rows,
                            int k, int first_k) {
  constexpr int kChunks = kDepth / 8;  // of 16 bytes, in a row
#pragma unroll
  for (int i = int(threadIdx.x); i < kTile * kChunks; i += kThreads) {
    const int row = first_row + i / kChunks, column = first_k + i % kChunks * 8;
    const bool inside = row < rows && column < k;
    CopyAsync16(&to[i / kChunks][i % kChunks * 8], inside ? from + size_t(row) * k + column : from, inside);
  }
}

__device__ void LoadStage(Stage& stage, const GemmArgs& args, int first_k) {
  if (first_k < args.k) {
    LoadOperand(stage.a, args.a, int(blockIdx.y) * kTile, args.m, args.k, first_k);
    LoadOperand(stage.w, args.w, int(blockIdx.x) * kTile, args.n, args.k, first_k);
  }
  CommitAsyncCopies();
}

// sums[i][j]: rows 16 i.. and columns 8 j.. of the warp's part of C.
__device__ void Multiply(float (&sums)[2][4][4], const Stage& stage, int row, int column, int lane) {
#pragma unroll
  for (int k = 0; k < kDepth; k += 16) {
    uint32_t a[2][4], w[2][4];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      LoadMatrices4(a[i], &stage.a[row + 16 * i + lane % 16][k + lane / 16 * 8]);
      LoadMatrices4(w[i], &stage.w[column + 16 * i + lane % 8 + lane / 16 * 8][k + lane / 8 % 2 * 8]);
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) MultiplyAdd(sums[i][j], a[i], {w[j / 2][j % 2 * 2], w[j / 2][j % 2 * 2 + 1]});
    }
  }
}

__global__ void __launch_bounds__(kThreads) GemmKernel(const GemmArgs args) {
  __shared__ __align__(16) Stage stages[kStages];
  const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
  const int row = warp / 2 * 32, column = warp % 2 * 32;
  float sums[2][4][4] = {};
  LoadStage(stages[0], args, 0);
  int stage = 0;
  for (int k = 0; k < args.k; k += kDepth, stage ^= 1) {
    LoadStage(stages[stage ^ 1], args, k + kDepth);
    AwaitAsyncCopies<1>();
    __syncthreads();
    Multiply(sums, stages[stage], row, column, lane);
    __syncthreads();  // before the copies of the next turn overwrite this stage
  }
  AwaitAsyncCopies<0>();
  const int first_row = int(blockIdx.y) * kTile + row + lane / 4,
            first_column = int(blockIdx.x) * kTile + column + lane % 4 * 2;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int r = first_row + 16 * i + e / 2 * 8, c = first_column + 8 * j + e % 2;
        if (r < args.m && c < args.n) args.c[size_t(r) * args.n + c] = sums[i][j][e];
      }
    }
  }
}

}  // namespace

cudaError_t Gemm(const GemmArgs& args, cudaStream_t stream) {
  if (args.m < 0 || args.n <= 0 || args.k <= 0 || args.k % 8 != 0) return cudaErrorInvalidValue;
  if (args.m == 0) return cudaSuccess;
  const dim3 grid(unsigned((args.n + kTile - 1) / kTile), unsigned((args.m + kTile - 1) / kTile));
  GemmKernel<<<grid, kThreads, 0, stream>>>(args);
  return cudaGetLastError();
}

}  // namespace sluice::kernels::cuda
