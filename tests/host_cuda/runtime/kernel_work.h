// A launch of a kernel as a work for a stream or a node of a graph.
#pragma once

#include <cuda_runtime_api.h>

#include "tests/host_cuda/runtime/device_work.h"

namespace host_cuda::rt {

struct KernelLaunch {
  const void* host = nullptr;  // the stub or the cudaKernel_t
  dim3 grid, block;
  size_t shared = 0;
  void** args = nullptr;  // read by MakeKernelWork
};

// Checks the launch against the device's limits. With the runtime's mutex held.
cudaError_t MakeKernelWork(const KernelLaunch& launch, int device, DeviceWork* work);

}  // namespace host_cuda::rt
