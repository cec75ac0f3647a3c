#include "kernels/cuda/rows/embed.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads) EmbedKernel(const EmbedArgs args) {
  const int row = int(blockIdx.x);
  const int64_t from = args.tokens[row] * args.table_stride;
  float* x = args.x + row * args.x_stride;
  for (int i = int(threadIdx.x); i < args.width; i += kThreads) {
    const float value =
        args.f32_table != nullptr ? args.f32_table[from + i] : __bfloat162float(args.bf16_table[from + i]);
    x[i] = __fmul_rn(args.scale, value);
  }
}

}  // namespace

cudaError_t Embed(const EmbedArgs& args, cudaStream_t stream) {
  if (args.rows < 0 || args.width <= 0 || (args.f32_table == nullptr) == (args.bf16_table == nullptr)) {
    return cudaErrorInvalidValue;
  }
  if (args.rows == 0) return cudaSuccess;
  EmbedKernel<<<unsigned(args.rows), kThreads, 0, stream>>>(args);
  return cudaGetLastError();
}

}  // namespace sluice::kernels::cuda
