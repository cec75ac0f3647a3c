// Launches of kernels, their attributes, occupancy.
#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "tests/host_cuda/engine/grid.h"
#include "tests/host_cuda/engine/limits.h"
#include "tests/host_cuda/runtime/api.h"
#include "tests/host_cuda/runtime/capture.h"
#include "tests/host_cuda/runtime/errors.h"
#include "tests/host_cuda/runtime/injection.h"
#include "tests/host_cuda/runtime/module.h"
#include "tests/host_cuda/runtime/properties.h"
#include "tests/host_cuda/runtime/report.h"

namespace host_cuda::rt {
namespace {

size_t DynamicLimit(const Function& function, const Kernel& kernel) {
  if (function.dynamic_limit >= 0) return static_cast<size_t>(function.dynamic_limit);
  return kSharedPerBlock - std::min(kSharedPerBlock, kernel.static_shared_bytes);
}

cudaError_t CheckLimits(const Function& function, const Kernel& kernel, const dim3& grid, const dim3& block,
                        size_t shared) {
  const uint64_t threads = uint64_t{block.x} * block.y * block.z;
  const bool grid_fits = grid.x <= kMaxGridX && grid.y <= kMaxGridY && grid.z <= kMaxGridZ;
  const bool block_fits = threads <= kMaxThreadsPerBlock && block.z <= kMaxBlockZ;
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || threads == 0 || !grid_fits || !block_fits) {
    return cudaErrorInvalidConfiguration;
  }
  if (threads > kernel.max_threads) return cudaErrorInvalidValue;  // more than __launch_bounds__
  if (shared > DynamicLimit(function, kernel)) {
    Report(function.name + ": " + std::to_string(shared) + " bytes of dynamic shared memory, " +
           std::to_string(DynamicLimit(function, kernel)) + " are allowed (cudaFuncSetAttribute allows more)");
    return cudaErrorInvalidValue;
  }
  return cudaSuccess;
}

DeviceWork KernelWork(const Kernel& kernel, const dim3& grid, const dim3& block, size_t shared, void** args) {
  // Arguments are taken at the launch.
  auto params = std::make_shared<std::vector<unsigned char>>(kernel.param_bytes + 16);
  for (size_t i = 0; i < kernel.params.size(); ++i) {
    std::memcpy(params->data() + kernel.params[i].offset, args[i], kernel.params[i].bytes);
  }
  const Launch launch{{grid.x, grid.y, grid.z}, {block.x, block.y, block.z}, shared};
  return Repeatable(kernel.name, DeviceWork::Kind::kKernel, [&kernel, launch, params] {
    if (const auto fail = TheFailurePlan().Next("launch")) {
      return DeviceFault(ErrorNamed(*fail).value_or(cudaErrorUnknown),
                         "kernel " + kernel.name + " fails on purpose (HOST_CUDA_FAIL)");
    }
    const std::string wrong = RunGrid(kernel, launch, params->data());
    if (!wrong.empty()) DeviceFault(cudaErrorLaunchFailure, wrong);
  });
}

cudaError_t LaunchKernel(const char* name, const void* host, const dim3& grid, const dim3& block, void** args,
                         size_t shared, cudaStream_t stream) {
  return Api(name, Rule::kOrdinary, [&](Runtime& runtime, auto&) {
    const Function* function = FindFunction(host);
    if (function == nullptr) return cudaErrorInvalidDeviceFunction;
    const Kernel* kernel = FindKernel(function->name);
    if (kernel == nullptr) {
      Report("the kernel " + function->name + " was not translated");
      return cudaErrorInvalidDeviceFunction;
    }
    const auto queue = runtime.Find(stream);
    if (!queue) return cudaErrorInvalidResourceHandle;
    if (const cudaError_t error = CheckLimits(*function, *kernel, grid, block, shared)) return error;
    return AppendOrCapture(runtime, queue, KernelWork(*kernel, grid, block, shared, args));
  });
}

// Blocks of this kernel that a multiprocessor holds at once, going by threads and shared memory (registers are
// unknown).
int ActiveBlocks(const Kernel& kernel, int threads, size_t dynamic) {
  if (threads <= 0 || static_cast<uint32_t>(threads) > kernel.max_threads) return 0;
  const size_t shared = kernel.static_shared_bytes + dynamic;
  if (shared > kSharedPerBlockOptIn) return 0;
  const int rounded = (threads + 31) / 32 * 32;
  const int by_shared = static_cast<int>(kSharedPerMultiprocessor / (shared + kSharedReserved));
  return std::min({kThreadsPerMultiprocessor / rounded, kBlocksPerMultiprocessor, by_shared});
}

}  // namespace
}  // namespace host_cuda::rt

using namespace host_cuda::rt;  // NOLINT: the C interface below belongs to no namespace
using host_cuda::FindKernel;
using host_cuda::Kernel;

extern "C" {

cudaError_t cudaLaunchKernel(const void* host, dim3 grid, dim3 block, void** args, size_t shared, cudaStream_t stream) {
  return LaunchKernel(__func__, host, grid, block, args, shared, stream);
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* host, void** args) {
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    switch (config->attrs[i].id) {
      case cudaLaunchAttributeProgrammaticStreamSerialization:  // allowed to start early; need not
      case cudaLaunchAttributePriority:
      case cudaLaunchAttributeIgnore:
        break;
      default:
        host_cuda::Report("cudaLaunchKernelExC: launch attribute " + std::to_string(config->attrs[i].id) +
                          " is not known here");
        return Remember(cudaErrorNotSupported);
    }
  }
  return LaunchKernel(__func__, host, config->gridDim, config->blockDim, args, config->dynamicSmemBytes,
                      config->stream);
}

cudaError_t cudaFuncSetAttribute(const void* host, cudaFuncAttribute attribute, int value) {
  return Api(__func__, Rule::kOrdinary, [&](Runtime&, auto&) {
    Function* function = FindFunction(host);
    const Kernel* kernel = function != nullptr ? FindKernel(function->name) : nullptr;
    if (kernel == nullptr) return cudaErrorInvalidDeviceFunction;
    switch (attribute) {
      case cudaFuncAttributeMaxDynamicSharedMemorySize:
        if (value < 0 || static_cast<size_t>(value) + kernel->static_shared_bytes > kSharedPerBlockOptIn) {
          return cudaErrorInvalidValue;
        }
        function->dynamic_limit = value;
        return cudaSuccess;
      case cudaFuncAttributePreferredSharedMemoryCarveout:
        function->carveout = value;
        return cudaSuccess;
      default:
        return cudaErrorInvalidValue;
    }
  });
}

cudaError_t cudaFuncSetCacheConfig(const void* host, cudaFuncCache) {
  return Api(__func__, Rule::kOrdinary, [&](Runtime&, auto&) {
    return FindFunction(host) != nullptr ? cudaSuccess : cudaErrorInvalidDeviceFunction;
  });
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* host) {
  return Api(__func__, Rule::kOrdinary, [&](Runtime&, auto&) {
    const Function* function = FindFunction(host);
    const Kernel* kernel = function != nullptr ? FindKernel(function->name) : nullptr;
    if (kernel == nullptr) return cudaErrorInvalidDeviceFunction;
    *attributes = {};
    attributes->sharedSizeBytes = kernel->static_shared_bytes;
    attributes->maxThreadsPerBlock = static_cast<int>(kernel->max_threads);
    attributes->maxDynamicSharedSizeBytes = static_cast<int>(DynamicLimit(*function, *kernel));
    attributes->preferredShmemCarveout = function->carveout;
    attributes->ptxVersion = attributes->binaryVersion = 80;
    return cudaSuccess;
  });
}

cudaError_t cudaFuncGetName(const char** name, const void* host) {
  return Api(__func__, Rule::kOrdinary, [&](Runtime&, auto&) {
    const Function* function = FindFunction(host);
    if (function == nullptr) return cudaErrorInvalidDeviceFunction;
    *name = function->name.c_str();
    return cudaSuccess;
  });
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* host, int threads,
                                                                   size_t dynamic, unsigned) {
  return Api(__func__, Rule::kOrdinary, [&](Runtime&, auto&) {
    const Function* function = FindFunction(host);
    const Kernel* kernel = function != nullptr ? FindKernel(function->name) : nullptr;
    if (kernel == nullptr) return cudaErrorInvalidDeviceFunction;
    if (threads <= 0) return cudaErrorInvalidValue;
    *blocks = ActiveBlocks(*kernel, threads, dynamic);
    return cudaSuccess;
  });
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* host, int threads, size_t dynamic) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, host, threads, dynamic, cudaOccupancyDefault);
}

cudaError_t cudaOccupancyAvailableDynamicSMemPerBlock(size_t* bytes, const void* host, int blocks, int) {
  return Api(__func__, Rule::kOrdinary, [&](Runtime&, auto&) {
    const Function* function = FindFunction(host);
    const Kernel* kernel = function != nullptr ? FindKernel(function->name) : nullptr;
    if (kernel == nullptr || blocks <= 0) return cudaErrorInvalidDeviceFunction;
    const size_t each = kSharedPerMultiprocessor / static_cast<size_t>(blocks),
                 fixed = kernel->static_shared_bytes + kSharedReserved;
    *bytes = std::min(each > fixed ? each - fixed : 0, DynamicLimit(*function, *kernel));
    return cudaSuccess;
  });
}

}  // extern "C"
