#include "kernels/cuda/backend/step_graphs.h"

namespace sluice::kernels::cuda {

int PaddedRows(int rows) {
  if (rows > 8) return (rows + 7) / 8 * 8;
  int padded = 1;
  while (padded < rows) padded *= 2;
  return padded;
}

// Thread-local: other threads move KV meanwhile, which this must not forbid.
cudaError_t StepGraphs::Begin(cudaStream_t stream) {
  return cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
}

cudaError_t StepGraphs::End(cudaStream_t stream, int rows) {
  cudaGraph_t graph = nullptr;
  cudaError_t error = cudaStreamEndCapture(stream, &graph);
  if (error != cudaSuccess) return error;
  cudaGraphExec_t exec = nullptr;
  error = cudaGraphInstantiate(&exec, graph, 0);
  (void)cudaGraphDestroy(graph);
  if (error == cudaSuccess) graphs_[rows].reset(exec);
  return error;
}

}  // namespace sluice::kernels::cuda
