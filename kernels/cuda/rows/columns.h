// Columns of rows into a run of their own and back: what ranks exchange lies strided in rows, and NCCL moves runs.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace sluice::kernels::cuda {

inline constexpr int kMostRanks = 64;

// Everything in bytes, multiples of 2. Runs are [ranks][rows][run_pitch], of which rank r uses the first
// borders[r + 1] - borders[r] bytes of each row.
struct ColumnsArgs {
  void* rows = nullptr;  // [count][row_pitch]
  int64_t row_pitch = 0;
  void* runs = nullptr;   // aligned to 16 bytes
  int64_t run_pitch = 0;  // a multiple of 16
  int count = 0;
  int ranks = 0;
  int rank = 0;
  int64_t borders[kMostRanks + 1] = {};  // where ranks begin in a row
};

// This rank's columns to its run.
cudaError_t PackColumns(const ColumnsArgs& args, cudaStream_t stream);

// The others' runs to their columns.
cudaError_t UnpackColumns(const ColumnsArgs& args, cudaStream_t stream);

}  // namespace sluice::kernels::cuda
