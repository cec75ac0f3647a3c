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
#include "tests/host_cuda/runtime/kernel_work.h"
#include "tests/host_cuda/runtime/module.h"
#include "tests/host_cuda/runtime/properties.h"
#include "tests/host_cuda/runtime/report.h"

namespace host_cuda::rt {
namespace {

size_t DynamicLimit(const Function& function, const Kernel& kernel, int device) {
  const auto set = function.on.find(device);
  if (set != function.on.end() && set->second.dynamic_limit >= 0) return static_cast<size_t>(set->second.dynamic_limit);
  return kSharedPerBlock - std::min(kSharedPerBlock, kernel.static_shared_bytes);
}

cudaError_t CheckLimits(const Function& function, const Kernel& kernel, const dim3& grid, const dim3& block,
                        size_t shared, int device) {
  const uint64_t threads = uint64_t{block.x} * block.y * block.z;
  const bool grid_fits = grid.x <= kMaxGridX && grid.y <= kMaxGridY && grid.z <= kMaxGridZ;
  const bool block_fits = threads <= kMaxThreadsPerBlock && block.z <= kMaxBlockZ;
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || threads == 0 || !grid_fits || !block_fits) {
    return cudaErrorInvalidConfiguration;
  }
  if (threads > kernel.max_threads) return cudaErrorInvalidValue;  // more than __launch_bounds__
  if (const size_t limit = DynamicLimit(function, kernel, device); shared > limit) {
    Report(function.name + ": " + std::to_string(shared) + " bytes of dynamic shared memory, " + std::to_string(limit) +
           " are allowed on device " + std::to_string(device) + " (cudaFuncSetAttribute allows more)");
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
    if (const auto fail = FailsOnPurpose("launch", kernel.name)) {
      return DeviceFault(ErrorNamed(*fail).value_or(cudaErrorUnknown),
                         "kernel " + kernel.name + " fails on purpose (HOST_CUDA_FAIL)");
    }
    const std::string wrong = RunGrid(kernel, launch, params->data());
    if (!wrong.empty()) DeviceFault(IsAssertion(wrong) ? cudaErrorAssert : cudaErrorLaunchFailure, wrong);
  });
}

cudaError_t LaunchKernel(const char* name, const KernelLaunch& launch, cudaStream_t stream) {
  return Api(name, Rule::kOrdinary, [&](Runtime& runtime, auto&) {
    const auto queue = runtime.Find(stream);
    if (!queue) return cudaErrorInvalidResourceHandle;
    DeviceWork work;
    if (const cudaError_t error = MakeKernelWork(launch, queue->device, &work)) return error;
    return AppendOrCapture(runtime, queue, std::move(work));
  });
}

const char* NameOf(cudaLaunchAttributeID id) {
  switch (id) {
    case cudaLaunchAttributeCooperative:
      return "cooperative: blocks run one after the other here, so a grid can't wait for itself";
    case cudaLaunchAttributeClusterDimension:
    case cudaLaunchAttributePreferredClusterDimension:
    case cudaLaunchAttributeClusterSchedulingPolicyPreference:
      return "cluster: blocks run one after the other here, so a cluster can't meet";
    case cudaLaunchAttributeAccessPolicyWindow:
      return "access policy window";
    case cudaLaunchAttributeProgrammaticEvent:
      return "programmatic event";
    case cudaLaunchAttributeLaunchCompletionEvent:
      return "launch completion event";
    case cudaLaunchAttributeDeviceUpdatableKernelNode:
      return "device-updatable node";
    default:
      return "unknown";
  }
}

// What changes nothing here is allowed, the rest is refused by its name.
cudaError_t CheckAttribute(const cudaLaunchAttribute& attribute) {
  switch (attribute.id) {
    case cudaLaunchAttributeProgrammaticStreamSerialization:  // allowed to start early; need not
    case cudaLaunchAttributePriority:
    case cudaLaunchAttributePreferredSharedMemoryCarveout:
    case cudaLaunchAttributeIgnore:
      return cudaSuccess;
    case cudaLaunchAttributeCooperative:
      if (attribute.val.cooperative == 0) return cudaSuccess;
      break;
    case cudaLaunchAttributeClusterDimension:
      if (const auto& d = attribute.val.clusterDim; d.x == 1 && d.y == 1 && d.z == 1) return cudaSuccess;
      break;
    default:
      break;
  }
  Report("cudaLaunchKernelExC: launch attribute " + std::to_string(attribute.id) +
         " is not here: " + NameOf(attribute.id));
  return cudaErrorNotSupported;
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

cudaError_t MakeKernelWork(const KernelLaunch& launch, int device, DeviceWork* work) {
  const Function* function = FindFunction(launch.host);
  if (function == nullptr) return cudaErrorInvalidDeviceFunction;
  const Kernel* kernel = FindKernel(function->name);
  if (kernel == nullptr) {
    Report("the kernel " + function->name + " was not translated");
    return cudaErrorInvalidDeviceFunction;
  }
  if (const cudaError_t error = CheckLimits(*function, *kernel, launch.grid, launch.block, launch.shared, device)) {
    return error;
  }
  *work = KernelWork(*kernel, launch.grid, launch.block, launch.shared, launch.args);
  return cudaSuccess;
}

}  // namespace host_cuda::rt

using namespace host_cuda::rt;  // NOLINT: the C interface below belongs to no namespace
using host_cuda::FindKernel;
using host_cuda::Kernel;
using host_cuda::Report;

extern "C" {

cudaError_t cudaLaunchKernel(const void* host, dim3 grid, dim3 block, void** args, size_t shared, cudaStream_t stream) {
  return LaunchKernel(__func__, {host, grid, block, shared, args}, stream);
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* host, void** args) {
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    if (const cudaError_t error = CheckAttribute(config->attrs[i])) return Remember(error);
  }
  return LaunchKernel(__func__, {host, config->gridDim, config->blockDim, config->dynamicSmemBytes, args},
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
        function->on[CurrentDevice()].dynamic_limit = value;
        return cudaSuccess;
      case cudaFuncAttributePreferredSharedMemoryCarveout:
        function->on[CurrentDevice()].carveout = value;
        return cudaSuccess;
      case cudaFuncAttributeClusterDimMustBeSet:
      case cudaFuncAttributeRequiredClusterWidth:
      case cudaFuncAttributeRequiredClusterHeight:
      case cudaFuncAttributeRequiredClusterDepth:
      case cudaFuncAttributeNonPortableClusterSizeAllowed:
      case cudaFuncAttributeClusterSchedulingPolicyPreference:
        Report("cudaFuncSetAttribute: clusters are not here");
        return cudaErrorNotSupported;
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
    attributes->maxDynamicSharedSizeBytes = static_cast<int>(DynamicLimit(*function, *kernel, CurrentDevice()));
    const auto set = function->on.find(CurrentDevice());
    attributes->preferredShmemCarveout = set == function->on.end() ? -1 : set->second.carveout;
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
    *bytes = std::min(each > fixed ? each - fixed : 0, DynamicLimit(*function, *kernel, CurrentDevice()));
    return cudaSuccess;
  });
}

}  // extern "C"
