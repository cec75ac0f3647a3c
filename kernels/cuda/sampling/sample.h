// Rows of logits to tokens and log-probabilities, on the device, with the bits of the CPU's sampler
// (kernels/sampling.h).
//
// Nothing in here waits for another block, and what is launched depends on the numbers of rows and logits alone, so it
// can be part of a graph: rows that are not to be sampled (SampleKind::kHost) cost a few empty blocks.
//
// Limits: logits of rows that are sampled, and their maxima, are edited and stay so.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "kernels/sampling.h"

namespace sluice::kernels::cuda {

inline constexpr int kMostSampleTops = 128;        // alternatives of a row
inline constexpr int kMostSampleVocab = 64 << 14;  // logits of a row

struct SampleArgs {
  float* logits = nullptr;  // [rows][vocab]
  float* maxima = nullptr;  // [rows][NumLogitBlocks(vocab)]: the largest of each block, NaN counting for nothing
  const SampleRow* rows_of = nullptr;  // [rows]
  const LogitEdit* edits = nullptr;    // as the rows say
  SampledToken* tokens = nullptr;      // out [rows]
  SampledToken* tops = nullptr;        // out, as the rows say
  void* workspace = nullptr;           // of SampleWorkspace bytes, aligned to 256
  int rows = 0, vocab = 0;
};

// `edits`: of all rows together.
size_t SampleWorkspace(int rows, int vocab, int edits);

cudaError_t Sample(const SampleArgs& args, cudaStream_t stream);

}  // namespace sluice::kernels::cuda
