// Recorded steps of decode rows: one CUDA graph for each padded number of rows, replayed with one launch.
#pragma once

#include <cuda_runtime_api.h>

#include <map>
#include <memory>

namespace sluice::kernels::cuda {

// 1, 2, 4, 8, then multiples of 8.
int PaddedRows(int rows);

class StepGraphs {
 public:
  bool Has(int rows) const { return graphs_.contains(rows); }

  // What is issued on `stream` between the two is recorded, not run.
  cudaError_t Begin(cudaStream_t stream);
  cudaError_t End(cudaStream_t stream, int rows);

  cudaError_t Launch(cudaStream_t stream, int rows) const { return cudaGraphLaunch(graphs_.at(rows).get(), stream); }

 private:
  struct Destroy {
    void operator()(cudaGraphExec_t graph) const { (void)cudaGraphExecDestroy(graph); }
  };
  std::map<int, std::unique_ptr<CUgraphExec_st, Destroy>> graphs_;
};

}  // namespace sluice::kernels::cuda
