// The kernel of gemm.h, over how W is kept and how many rows and columns a block computes (Tiling). Whatever a file
// instantiates of it gives the same bits for the same values of W: the order of sums is here.
#pragma once

#include <algorithm>

#include "kernels/cuda/async_copy.cuh"
#include "kernels/cuda/gemm/gated.cuh"
#include "kernels/cuda/gemm/gemm.h"
#include "kernels/cuda/mma.cuh"

namespace sluice::kernels::cuda {

struct Launch {
  GemmArgs args;
  GemmSlicing slicing;
  bool gated;
  bool split;   // a block computes one slice, and stores its sums in the workspace, [slice][m][columns]
  int columns;  // of all parts
};

// The slices that blocks computed apart (gemm.cu).
cudaError_t FoldSlices(const Launch& launch, cudaStream_t stream);

// The same with W in 8 bits (gemm_int8.cu).
cudaError_t LaunchInt8(const Launch& launch, cudaStream_t stream);

namespace {

// A block computes kN rows of W by kM rows of a. W is the A operand of the tensor cores and the rows of a are the B
// operand, for every number of rows: so few rows waste little, and all sizes have one order of sums.
template <template <class> class Weights_, int kWarpsN_, int kWarpsM_, int kTilesN_, int kTilesM_, int kDepth_,
          int kStages_>
struct Tiling {
  using Weights = Weights_<Tiling>;  // Tile, Load, Reader: how W is kept, and what becomes of it
  static constexpr int kWarpsN = kWarpsN_, kWarpsM = kWarpsM_;
  static constexpr int kTilesN = kTilesN_, kTilesM = kTilesM_;  // of 16 rows of W and 8 rows of a, in a warp
  static constexpr int kDepth = kDepth_, kStages = kStages_;    // of k in a stage; stages under way
  static constexpr int kN = kWarpsN * kTilesN * 16, kM = kWarpsM * kTilesM * 8;
  static constexpr int kThreads = kWarpsN * kWarpsM * 32;
  static_assert(kTilesM % 2 == 0, "fragments of a are loaded two at a time");
};
template <class T>
struct Stage {
  static constexpr int kStride = T::kDepth + 8;  // 16 bytes of padding: eight rows lie in different banks
  typename T::Weights::Tile w;
  __nv_bfloat16 a[T::kM][kStride];
};

// First the stages; then, in the same place, the sums, [row of a][row of W].
template <class T>
union Shared {
  static constexpr int kSumStride =
      T::kN + 4;  // the eight columns of four rows that a warp writes lie in different banks
  Stage<T> stages[T::kStages];
  float sums[T::kM][kSumStride];
};

// The rows of W of a block: kN of one part; gated, half as many of each of two parts.
struct Rows {
  int part, first;  // gated: of part 0, and of part 1 behind them
  int column;       // of the workspace
};

template <class T>
__host__ __device__ int TilesOf(const GemmPart& part, bool gated) {
  const int rows = gated ? T::kN / 2 : T::kN;
  return (part.n + rows - 1) / rows;
}

template <class T>
__device__ Rows RowsOf(const Launch& launch, int tile) {
  if (launch.gated) return {0, tile * (T::kN / 2), tile * (T::kN / 2)};
  int part = 0, column = 0;
  for (; part + 1 < launch.args.num_parts; ++part) {
    const int tiles = TilesOf<T>(launch.args.parts[part], false);
    if (tile < tiles) break;
    tile -= tiles;
    column += launch.args.parts[part].n;
  }
  return {part, tile * T::kN, column + tile * T::kN};
}

// Row r of a block's kN: which part and which row of it. False: there is none.
template <class T>
__device__ bool Find(const Launch& launch, const Rows& rows, int r, int* part, int* row) {
  constexpr int kHalf = T::kN / 2;
  const bool second = launch.gated && r >= kHalf;
  *part = second ? 1 : rows.part;
  *row = rows.first + (second ? r - kHalf : r);
  return *row < launch.args.parts[*part].n;
}

template <class T>
__device__ void LoadStage(Stage<T>& stage, const Launch& launch, const Rows& rows, int first_k, int end_k) {
  constexpr int kChunks = T::kDepth / 8;  // of 16 bytes, in a row
  const GemmArgs& args = launch.args;
  if (first_k < end_k) {
    T::Weights::Load(stage.w, launch, rows, first_k);
#pragma unroll
    for (int i = int(threadIdx.x); i < T::kM * kChunks; i += T::kThreads) {
      const int row = int(blockIdx.y) * T::kM + i / kChunks;
      const bool inside = row < args.m;
      CopyAsync16(&stage.a[i / kChunks][i % kChunks * 8],
                  inside ? args.a + row * args.a_stride + first_k + i % kChunks * 8 : args.a, inside);
    }
  }
  CommitAsyncCopies();
}

// D fragments of a warp: [tile of 16 rows of W][tile of 8 rows of a].
template <class T>
struct Sums {
  float at[T::kTilesN][T::kTilesM][4] = {};
};

template <class T>
__device__ void Multiply(Sums<T>& sums, const Stage<T>& stage, int first_w, int first_a, int lane) {
  typename T::Weights::Reader reader(stage.w, first_w, lane);
#pragma unroll
  for (int k = 0; k < T::kDepth; k += 16) {
    uint32_t w[T::kTilesN][4], a[T::kTilesM / 2][4];
    reader.Read(w, k);
#pragma unroll
    for (int j = 0; j < T::kTilesM / 2; ++j) {
      LoadMatrices4(a[j], &stage.a[first_a + 16 * j + lane % 8 + lane / 16 * 8][k + lane / 8 % 2 * 8]);
    }
#pragma unroll
    for (int i = 0; i < T::kTilesN; ++i) {
#pragma unroll
      for (int j = 0; j < T::kTilesM; ++j) {
        MultiplyAdd(sums.at[i][j], w[i], {a[j / 2][j % 2 * 2], a[j / 2][j % 2 * 2 + 1]});
      }
    }
  }
}

template <class T>
__device__ void AddSlice(Sums<T>& total, Sums<T>& slice) {
#pragma unroll
  for (int i = 0; i < T::kTilesN; ++i) {
#pragma unroll
    for (int j = 0; j < T::kTilesM; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        total.at[i][j][e] = __fadd_rn(total.at[i][j][e], slice.at[i][j][e]);
        slice.at[i][j][e] = 0;
      }
    }
  }
}

// The sums of slices [first, end), in order.
template <class T>
__device__ void SumSlices(Sums<T>& total, Shared<T>& shared, const Launch& launch, const Rows& rows, int first,
                          int end) {
  const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
  const int first_w = warp / T::kWarpsM * T::kTilesN * 16, first_a = warp % T::kWarpsM * T::kTilesM * 8;
  const int length = launch.slicing.length, end_k = min(end * length, launch.args.k);
  int load_k = first * length;
#pragma unroll
  for (int i = 0; i + 1 < T::kStages; ++i, load_k += T::kDepth) {
    LoadStage<T>(shared.stages[i], launch, rows, load_k, end_k);
  }
  Sums<T> slice;
  int stage = 0, free = T::kStages - 1, border = (first + 1) * length;
  for (int k = first * length; k < end_k; k += T::kDepth) {
    if (k == border) {
      AddSlice<T>(total, slice);
      border += length;
    }
    AwaitAsyncCopies<T::kStages - 2>();
    __syncthreads();  // this stage is whole, and nobody reads the one that is loaded next
    LoadStage<T>(shared.stages[free], launch, rows, load_k, end_k);
    load_k += T::kDepth;
    Multiply<T>(slice, shared.stages[stage], first_w, first_a, lane);
    free = stage;
    stage = stage + 1 == T::kStages ? 0 : stage + 1;
  }
  AddSlice<T>(total, slice);
  AwaitAsyncCopies<0>();
}

template <class T>
__device__ void KeepSums(Shared<T>& shared, const Sums<T>& total) {
  const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
  const int w = warp / T::kWarpsM * T::kTilesN * 16 + lane / 4, a = warp % T::kWarpsM * T::kTilesM * 8 + lane % 4 * 2;
#pragma unroll
  for (int i = 0; i < T::kTilesN; ++i) {
#pragma unroll
    for (int j = 0; j < T::kTilesM; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) shared.sums[a + 8 * j + e % 2][w + 16 * i + e / 2 * 8] = total.at[i][j][e];
    }
  }
}

__device__ void Put(const GemmArgs& args, int part_index, int row, int column, float sum) {
  const GemmPart& part = args.parts[part_index];
  const size_t at = size_t(row) * part.stride + column;
  if (args.output == GemmOutput::kAdd) {
    float* out = static_cast<float*>(part.out) + at;
    *out = __fadd_rn(*out, sum);
    return;
  }
  const float value = part.bias == nullptr ? sum : __fadd_rn(sum, part.bias[column]);
  if (args.output == GemmOutput::kF32) {
    static_cast<float*>(part.out)[at] = value;
  } else {
    static_cast<__nv_bfloat16*>(part.out)[at] = __float2bfloat16_rn(value);
  }
}

__device__ void PutGated(const GemmArgs& args, int row, int column, float gate, float up) {
  const float value = args.output == GemmOutput::kGatedSilu ? Silu(gate) : GeluTanh(gate);
  static_cast<__nv_bfloat16*>(args.parts[0].out)[size_t(row) * args.parts[0].stride + column] =
      __float2bfloat16_rn(__fmul_rn(value, up));
}

template <class T>
__global__ void __launch_bounds__(T::kThreads) GemmKernel(const Launch launch) {
  extern __shared__ __align__(16) unsigned char memory[];
  Shared<T>& shared = *reinterpret_cast<Shared<T>*>(memory);
  const GemmArgs& args = launch.args;
  const Rows rows = RowsOf<T>(launch, int(blockIdx.x));
  const int slice = int(blockIdx.z);
  Sums<T> total;
  SumSlices<T>(total, shared, launch, rows, launch.split ? slice : 0, launch.split ? slice + 1 : launch.slicing.slices);
  __syncthreads();  // nobody reads stages any more
  KeepSums<T>(shared, total);
  __syncthreads();

  const int columns = launch.gated ? T::kN / 2 : T::kN;
  for (int i = int(threadIdx.x); i < T::kM * columns; i += T::kThreads) {
    const int a = i / columns, w = i % columns, row = int(blockIdx.y) * T::kM + a;
    if (row >= args.m || rows.first + w >= args.parts[rows.part].n) continue;
    const float* sums = shared.sums[a];
    if (launch.split) {
      float* to = static_cast<float*>(args.workspace) + (size_t(slice) * args.m + row) * launch.columns;
      to[rows.column + w] = sums[w];
      if (launch.gated) to[args.parts[0].n + rows.column + w] = sums[w + T::kN / 2];
    } else if (launch.gated) {
      PutGated(args, row, rows.first + w, sums[w], sums[w + T::kN / 2]);
    } else {
      Put(args, rows.part, row, rows.first + w, sums[w]);
    }
  }
}

// Blocks that fill a large GPU once.
constexpr int kManyBlocks = 132;

template <class T>
cudaError_t Run(Launch launch, cudaStream_t stream) {
  const GemmArgs& args = launch.args;
  int tiles = 0;
  for (int i = 0; i < args.num_parts; ++i) {
    launch.columns += args.parts[i].n;
    if (i == 0 || !launch.gated) tiles += TilesOf<T>(args.parts[i], launch.gated);
  }
  const int row_tiles = (args.m + T::kM - 1) / T::kM, slices = launch.slicing.slices;
  const size_t needed = size_t(slices) * args.m * launch.columns * sizeof(float);
  launch.split = slices > 1 && tiles * row_tiles < kManyBlocks && needed <= args.workspace_bytes;
  constexpr int kShared = int(sizeof(Shared<T>));
  if (const cudaError_t e = cudaFuncSetAttribute(GemmKernel<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared);
      e != cudaSuccess) {
    return e;
  }
  const dim3 grid(unsigned(tiles), unsigned(row_tiles), unsigned(launch.split ? slices : 1));
  GemmKernel<T><<<grid, T::kThreads, kShared, stream>>>(launch);
  if (const cudaError_t e = cudaGetLastError(); e != cudaSuccess || !launch.split) return e;
  return FoldSlices(launch, stream);
}

}  // namespace
}  // namespace sluice::kernels::cuda
