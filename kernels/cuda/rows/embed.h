// The beginning of a step: x[row] = scale * table[token of the row].
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

namespace sluice::kernels::cuda {

struct EmbedArgs {
  const int32_t* tokens = nullptr;   // [rows], each in [0, vocab)
  const float* f32_table = nullptr;  // [vocab][table_stride]: one of the two
  const __nv_bfloat16* bf16_table = nullptr;
  int64_t table_stride = 0;
  float* x = nullptr;  // [rows][x_stride]; what is behind width stays as it is
  int64_t x_stride = 0;
  int rows = 0, width = 0;
  float scale = 1;
};

cudaError_t Embed(const EmbedArgs& args, cudaStream_t stream);

}  // namespace sluice::kernels::cuda
