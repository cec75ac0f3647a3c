// The largest of each 64 numbers of a row, NaN counting for nothing: what lets a sampler read few logits.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace sluice::kernels::cuda {

struct BlockMaximaArgs {
  const float* x = nullptr;  // [rows][x_stride]
  int64_t x_stride = 0;
  float* maxima = nullptr;  // [rows][maxima_stride], of which ceil(width / 64) are written
  int64_t maxima_stride = 0;
  int rows = 0, width = 0;
};

cudaError_t BlockMaxima(const BlockMaximaArgs& args, cudaStream_t stream);

}  // namespace sluice::kernels::cuda
