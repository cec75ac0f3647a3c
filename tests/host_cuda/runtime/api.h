// What every function of the fake libcudart does around its own matter: take the mutex; fail on purpose if
// HOST_CUDA_FAIL says so; refuse in host callbacks, after a fork, on a stuck device and in captures that forbid it;
// remember the thread's last error.
#pragma once

#include <cuda_runtime_api.h>

#include <mutex>
#include <string>

#include "tests/host_cuda/runtime/runtime.h"

namespace host_cuda::rt {

enum class Rule {
  kOrdinary,
  kUnsafeInCapture,  // it may wait or allocate
  kAlways,           // even on a stuck device and in callbacks: what only asks
};

// bytes: that it allocates.
cudaError_t Enter(Runtime& runtime, const char* name, Rule rule, uint64_t bytes = 0);
cudaError_t Remember(cudaError_t error);

// For what isn't here: says so by name. cudaErrorNotSupported.
cudaError_t Refuse(const std::string& call, const std::string& what);

// Whether this thread runs a callback of cudaLaunchHostFunc.
bool& InHostCallback();

template <class Body>
cudaError_t Api(const char* name, Rule rule, Body body, uint64_t bytes = 0) {
  Runtime& runtime = TheRuntime();
  std::unique_lock<std::mutex> lock(runtime.mutex);
  cudaError_t error = Enter(runtime, name, rule, bytes);
  if (error == cudaSuccess) error = body(runtime, lock);
  return Remember(error);
}

}  // namespace host_cuda::rt
