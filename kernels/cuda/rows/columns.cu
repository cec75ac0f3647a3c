#include <algorithm>

#include "kernels/cuda/rows/columns.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kBytesOfBlock = 16384;  // of a row; wider ones have several blocks

// blockIdx.x is the row; the blocks of a row share its words out in turns.
template <class Word>
__global__ void __launch_bounds__(kThreads) ColumnsKernel(const ColumnsArgs args, const bool pack) {
  const int row = int(blockIdx.x);
  const int64_t first = int64_t(blockIdx.y) * kThreads + threadIdx.x, step = int64_t(gridDim.y) * kThreads;
  for (int rank = 0; rank < args.ranks; ++rank) {
    if ((rank == args.rank) != pack) continue;
    const int64_t begin = args.borders[rank], words = (args.borders[rank + 1] - begin) / int64_t(sizeof(Word));
    auto* column = reinterpret_cast<Word*>(static_cast<char*>(args.rows) + row * args.row_pitch + begin);
    auto* run =
        reinterpret_cast<Word*>(static_cast<char*>(args.runs) + (int64_t(rank) * args.count + row) * args.run_pitch);
    for (int64_t i = first; i < words; i += step) {
      if (pack) {
        run[i] = column[i];
      } else {
        column[i] = run[i];
      }
    }
  }
}

// The largest word that divides all places and lengths.
int WordOf(const ColumnsArgs& args) {
  int64_t all = args.row_pitch | int64_t(reinterpret_cast<uintptr_t>(args.rows)) | 16;
  for (int rank = 0; rank <= args.ranks; ++rank) all |= args.borders[rank];
  return int(all & -all);
}

cudaError_t Run(const ColumnsArgs& args, bool pack, cudaStream_t stream) {
  if (args.count < 0 || args.ranks < 1 || args.ranks > kMostRanks || args.rank < 0 || args.rank >= args.ranks ||
      args.run_pitch % 16 != 0 || WordOf(args) < 2) {
    return cudaErrorInvalidValue;
  }
  for (int rank = 0; rank < args.ranks; ++rank) {
    const int64_t bytes = args.borders[rank + 1] - args.borders[rank];
    if (bytes < 0 || bytes > args.run_pitch) return cudaErrorInvalidValue;
  }
  if (args.count == 0) return cudaSuccess;
  const int64_t blocks = std::clamp<int64_t>(args.borders[args.ranks] / kBytesOfBlock, 1, 64);
  const dim3 grid{unsigned(args.count), unsigned(blocks)};
  switch (WordOf(args)) {
    case 2:
      ColumnsKernel<uint16_t><<<grid, kThreads, 0, stream>>>(args, pack);
      break;
    case 4:
      ColumnsKernel<uint32_t><<<grid, kThreads, 0, stream>>>(args, pack);
      break;
    case 8:
      ColumnsKernel<uint2><<<grid, kThreads, 0, stream>>>(args, pack);
      break;
    default:
      ColumnsKernel<uint4><<<grid, kThreads, 0, stream>>>(args, pack);
  }
  return cudaGetLastError();
}

}  // namespace

cudaError_t PackColumns(const ColumnsArgs& args, cudaStream_t stream) {
  return Run(args, true, stream);
}

cudaError_t UnpackColumns(const ColumnsArgs& args, cudaStream_t stream) {
  return Run(args, false, stream);
}

}  // namespace sluice::kernels::cuda
