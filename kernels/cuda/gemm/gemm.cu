#include "kernels/cuda/gemm/gemm_kernel.cuh"

namespace sluice::kernels::cuda {
namespace {

// W as it is, [n][k].
template <class T>
struct Bf16Weights {
  static constexpr int kStride = T::kDepth + 8;  // as Stage's
  struct Tile {
    __nv_bfloat16 at[T::kN][kStride];
  };

  __device__ static void Load(Tile& tile, const Launch& launch, const Rows& rows, int first_k) {
    constexpr int kChunks = T::kDepth / 8;  // of 16 bytes, in a row
    const GemmArgs& args = launch.args;
#pragma unroll
    for (int i = int(threadIdx.x); i < T::kN * kChunks; i += T::kThreads) {
      int part, row;
      const bool inside = Find<T>(launch, rows, i / kChunks, &part, &row);
      const __nv_bfloat16* w = args.parts[part].w;
      CopyAsync16(&tile.at[i / kChunks][i % kChunks * 8],
                  inside ? w + size_t(row) * args.k + first_k + i % kChunks * 8 : w, inside);
    }
  }

  struct Reader {
    const Tile& tile;
    const int first_w, lane;
    __device__ Reader(const Tile& from, int first, int l) : tile(from), first_w(first), lane(l) {}
    __device__ void Read(uint32_t (&w)[T::kTilesN][4], int k) {
#pragma unroll
      for (int i = 0; i < T::kTilesN; ++i) {
        LoadMatrices4(w[i], &tile.at[first_w + 16 * i + lane % 16][k + lane / 16 * 8]);
      }
    }
  };
};

using FewRows = Tiling<Bf16Weights, 4, 1, 1, 2, 64, 4>;   // 64 x 16
using SomeRows = Tiling<Bf16Weights, 4, 1, 1, 8, 64, 3>;  // 64 x 64
using ManyRows = Tiling<Bf16Weights, 2, 4, 4, 4, 32, 4>;  // 128 x 128

constexpr int kFoldThreads = 256;

// The slices that blocks computed apart; a thread an output.
__global__ void __launch_bounds__(kFoldThreads) FoldKernel(const Launch launch) {
  const GemmArgs& args = launch.args;
  const int outputs = launch.gated ? args.parts[0].n : launch.columns;
  int column = int(blockIdx.x) * kFoldThreads + int(threadIdx.x);
  const int row = int(blockIdx.y);
  if (column >= outputs) return;
  const auto sum = [&](int at) {
    const float* from = static_cast<const float*>(args.workspace) + size_t(row) * launch.columns + at;
    float total = 0;
    for (int s = 0; s < launch.slicing.slices; ++s, from += size_t(args.m) * launch.columns) {
      total = __fadd_rn(total, *from);
    }
    return total;
  };
  if (launch.gated) {
    PutGated(args, row, column, sum(column), sum(args.parts[0].n + column));
    return;
  }
  const float total = sum(column);
  int part = 0;
  for (; column >= args.parts[part].n; ++part) column -= args.parts[part].n;
  Put(args, part, row, column, total);
}

bool Gated(const GemmArgs& args) {
  return args.output == GemmOutput::kGatedSilu || args.output == GemmOutput::kGatedGelu;
}

}  // namespace

cudaError_t FoldSlices(const Launch& launch, cudaStream_t stream) {
  const int outputs = launch.gated ? launch.args.parts[0].n : launch.columns;
  const dim3 grid(unsigned((outputs + kFoldThreads - 1) / kFoldThreads), unsigned(launch.args.m));
  FoldKernel<<<grid, kFoldThreads, 0, stream>>>(launch);
  return cudaGetLastError();
}

bool IsGemm(const GemmArgs& args) {
  const bool gated = Gated(args);
  if (args.m < 0 || args.k <= 0 || args.k % kGemmDepth != 0 || args.a_stride % 8 != 0) return false;
  if (args.num_parts < 1 || args.num_parts > kMaxGemmParts) return false;
  if (gated && (args.num_parts != 2 || args.parts[0].n != args.parts[1].n)) return false;
  for (int i = 0; i < args.num_parts; ++i) {
    if (args.parts[i].n <= 0 || (args.parts[i].int8 == nullptr) != (args.parts[0].int8 == nullptr)) return false;
  }
  return true;
}

GemmSlicing GemmSlices(int k) {
  constexpr int kLength = 1024, kMost = 8;
  const int steps = k / kGemmDepth, slices = std::clamp(k / kLength, 1, kMost);
  const int length = (steps + slices - 1) / slices * kGemmDepth;
  return {(k + length - 1) / length, length};
}

cudaError_t Gemm(const GemmArgs& args, cudaStream_t stream) {
  if (!IsGemm(args)) return cudaErrorInvalidValue;
  if (args.m == 0) return cudaSuccess;
  const Launch launch{args, GemmSlices(args.k), Gated(args), false, 0};
  if (args.parts[0].int8 != nullptr) return LaunchInt8(launch, stream);
  if (args.m <= FewRows::kM) return Run<FewRows>(launch, stream);
  if (args.m <= SomeRows::kM) return Run<SomeRows>(launch, stream);
  return Run<ManyRows>(launch, stream);
}

cudaError_t FinishProducts(const GemmArgs& args, cudaStream_t stream) {
  if (!IsGemm(args) || args.workspace == nullptr) return cudaErrorInvalidValue;
  if (args.m == 0) return cudaSuccess;
  Launch launch{args, {1, args.k}, Gated(args), true, 0};
  for (int i = 0; i < args.num_parts; ++i) launch.columns += args.parts[i].n;
  return FoldSlices(launch, stream);
}

}  // namespace sluice::kernels::cuda
