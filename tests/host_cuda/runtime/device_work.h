// What waits in a stream: the seam between the fake runtime and what else puts work on streams (fake NCCL, fake cuBLAS).
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <string>

namespace host_cuda {

struct DeviceWork {
  std::string name;            // for traces and error messages
  // Called on the device thread when it is this work's turn; true: done; false: call again later (something else, a peer's data,
  // has to come first). Must not block.
  std::function<bool()> step;
  // Of a captured graph: makes a new instance for each replay. Empty: the work may not be captured.
  std::function<DeviceWork()> fresh;
};

// In stream order; while the stream captures, a node of its graph.
cudaError_t Enqueue(cudaStream_t stream, DeviceWork work);

// The current device of the calling thread, and failing calls on purpose (HOST_CUDA_FAIL): see runtime/injection.h.

}  // namespace host_cuda
