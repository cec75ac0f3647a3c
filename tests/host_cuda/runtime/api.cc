#include "tests/host_cuda/runtime/api.h"

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "tests/host_cuda/runtime/capture.h"
#include "tests/host_cuda/runtime/errors.h"
#include "tests/host_cuda/runtime/injection.h"
#include "tests/host_cuda/runtime/report.h"

namespace host_cuda::rt {
namespace {

thread_local cudaError_t last_error = cudaSuccess;

// A name in HOST_CUDA_FAIL that CUDA doesn't have would silently inject nothing.
cudaError_t NamedOrDie(const std::string& name) {
  const auto error = ErrorNamed(name);
  if (error) return *error;
  std::fprintf(stderr, "host_cuda: HOST_CUDA_FAIL: no CUDA error is called %s\n", name.c_str());
  std::abort();
}

}  // namespace

bool& InHostCallback() {
  static thread_local bool in = false;
  return in;
}

cudaError_t Refuse(const std::string& call, const std::string& what) {
  Report(call + ": " + what + ": not in the test runtime");
  return cudaErrorNotSupported;
}

cudaError_t Remember(cudaError_t error) {
  if (error != cudaSuccess && error != cudaErrorNotReady) last_error = error;
  return error;
}

cudaError_t Enter(Runtime& runtime, const char* name, Rule rule, uint64_t bytes) {
  if (runtime.pid != getpid()) {  // CUDA doesn't survive a fork
    Report(std::string(name) + " in a process forked from one that had used CUDA");
    return cudaErrorInitializationError;
  }
  if (const auto fail = FailsOnPurpose(name, {}, bytes)) {
    const cudaError_t error = NamedOrDie(*fail);
    if (Sticks(error) && CurrentDevice() < runtime.settings.devices) runtime.device(CurrentDevice()).stuck = error;
    return error;
  }
  if (rule == Rule::kAlways) return cudaSuccess;
  if (runtime.settings.devices == 0) return cudaErrorNoDevice;
  if (InHostCallback()) {
    Report(std::string(name) + " was called in a callback of cudaLaunchHostFunc, which must not call CUDA");
    return cudaErrorNotPermitted;
  }
  if (runtime.device(CurrentDevice()).stuck != cudaSuccess) return runtime.device(CurrentDevice()).stuck;
  if (rule == Rule::kUnsafeInCapture) return RefuseInCapture(runtime, name);
  return cudaSuccess;
}

}  // namespace host_cuda::rt

using host_cuda::rt::ErrorName;
using host_cuda::rt::ErrorText;

extern "C" {

cudaError_t cudaGetLastError() {
  return std::exchange(host_cuda::rt::last_error, cudaSuccess);
}
cudaError_t cudaPeekAtLastError() {
  return host_cuda::rt::last_error;
}
const char* cudaGetErrorName(cudaError_t error) {
  return ErrorName(error);
}
const char* cudaGetErrorString(cudaError_t error) {
  return ErrorText(error);
}

}  // extern "C"
