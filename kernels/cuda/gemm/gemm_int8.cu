// Products whose W is kept in 8 bits (int8_layout.h). A lane finds its bytes of a tile in one piece and makes bf16 of
// them in registers, in front of the tensor cores; sums are those of bf16, so the bits are those of the product with
// the rounded matrix.
#include "kernels/cuda/gemm/gemm_kernel.cuh"
#include "kernels/cuda/gemm/int8_layout.h"

namespace sluice::kernels::cuda {
namespace {

// A byte of `codes` as a float: 2^23 and a byte are exact, and so is their difference.
template <int kByte>
__device__ float Code(uint32_t codes) {
  constexpr uint32_t kTwo23 = 0x4b000000;
  constexpr float kOffset = 8388608.0f + kInt8Zero;
  return __fsub_rn(__uint_as_float(__byte_perm(codes, kTwo23, 0x7440 + kByte)), kOffset);
}

template <class T>
struct Int8Weights {
  static_assert(T::kDepth == kInt8TileColumns);
  static constexpr int kTiles = T::kN / kInt8TileRows;
  struct Tile {
    uint4 at[kTiles][kInt8TileBytes / 16];
  };

  __device__ static void Load(Tile& tile, const Launch& launch, const Rows& rows, int first_k) {
    constexpr int kChunks = kInt8TileBytes / 16;
    const int steps = launch.args.k / T::kDepth, step = first_k / T::kDepth;
#pragma unroll
    for (int i = int(threadIdx.x); i < kTiles * kChunks; i += T::kThreads) {
      int part, row;
      const bool inside = Find<T>(launch, rows, i / kChunks * kInt8TileRows, &part, &row);
      const auto* w = static_cast<const unsigned char*>(launch.args.parts[part].int8);
      CopyAsync16(&tile.at[i / kChunks][i % kChunks],
                  inside ? w + (size_t(row / kInt8TileRows) * steps + step) * kInt8TileBytes + i % kChunks * 16 : w,
                  inside);
    }
  }

  struct Reader {
    const uint4* tiles;  // the lane's, of the first tile
    uint4 codes[T::kTilesN];
    float scales[T::kTilesN][2];  // of rows lane / 4 and lane / 4 + 8

    __device__ Reader(const Tile& from, int first_w, int lane) : tiles(&from.at[first_w / kInt8TileRows][lane]) {
#pragma unroll
      for (int i = 0; i < T::kTilesN; ++i) {
        const auto* at = reinterpret_cast<const __nv_bfloat16*>(
            reinterpret_cast<const unsigned char*>(from.at[first_w / kInt8TileRows + i]) + kInt8TileCodes);
        scales[i][0] = __bfloat162float(at[lane / 4]);
        scales[i][1] = __bfloat162float(at[lane / 4 + 8]);
      }
    }

    // k ascends by 16.
    __device__ void Read(uint32_t (&w)[T::kTilesN][4], int k) {
#pragma unroll
      for (int i = 0; i < T::kTilesN; ++i) {
        if (k % 32 == 0) codes[i] = tiles[i * (kInt8TileBytes / 16) + k];  // half a tile is 32 pieces
        const uint32_t two[2] = {k % 32 == 0 ? codes[i].x : codes[i].z, k % 32 == 0 ? codes[i].y : codes[i].w};
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          w[i][2 * j] = PackBf16(__fmul_rn(Code<0>(two[j]), scales[i][0]), __fmul_rn(Code<1>(two[j]), scales[i][0]));
          w[i][2 * j + 1] =
              PackBf16(__fmul_rn(Code<2>(two[j]), scales[i][1]), __fmul_rn(Code<3>(two[j]), scales[i][1]));
        }
      }
    }
  };
};

using FewRows = Tiling<Int8Weights, 4, 1, 1, 2, 64, 4>;   // 64 x 16
using SomeRows = Tiling<Int8Weights, 4, 1, 1, 8, 64, 3>;  // 64 x 64
using ManyRows = Tiling<Int8Weights, 4, 2, 2, 8, 64, 3>;  // 128 x 128: few warps make bf16 of the same bytes

}  // namespace

cudaError_t LaunchInt8(const Launch& launch, cudaStream_t stream) {
  if (launch.args.m <= FewRows::kM) return Run<FewRows>(launch, stream);
  if (launch.args.m <= SomeRows::kM) return Run<SomeRows>(launch, stream);
  return Run<ManyRows>(launch, stream);
}

}  // namespace sluice::kernels::cuda
