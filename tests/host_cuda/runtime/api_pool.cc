// The default memory pool of each device, the only one there is.
#include <array>

#include "tests/host_cuda/runtime/api.h"
#include "tests/host_cuda/runtime/settings.h"

struct CUmemPoolHandle_st {
  int device = 0;
};

namespace host_cuda::rt {
namespace {

cudaMemPool_t PoolOf(int device) {
  static std::array<CUmemPoolHandle_st, kMaxDevices> pools;
  pools[static_cast<size_t>(device)].device = device;
  return &pools[static_cast<size_t>(device)];
}

// nullptr: no such pool.
Pool* FindPool(Runtime& runtime, cudaMemPool_t handle) {
  for (int d = 0; d < runtime.settings.devices; ++d) {
    if (PoolOf(d) == handle) return &runtime.device(d).pool;
  }
  return nullptr;
}

cudaError_t GivePool(const char* name, cudaMemPool_t* pool, int device) {
  return Api(name, Rule::kAlways, [&](Runtime& runtime, auto&) {
    if (device < 0 || device >= runtime.settings.devices) return cudaErrorInvalidDevice;
    *pool = PoolOf(device);
    return cudaSuccess;
  });
}

uint64_t Attribute(Runtime& runtime, const Pool& pool, int device, cudaMemPoolAttr attribute) {
  switch (attribute) {
    case cudaMemPoolAttrReleaseThreshold:
      return pool.release_threshold;
    case cudaMemPoolAttrUsedMemCurrent:
    case cudaMemPoolAttrReservedMemCurrent:
      return runtime.memory->PoolBytes(device);
    default:
      return std::max<uint64_t>(pool.used_high, runtime.memory->PoolBytes(device));
  }
}

bool IsSwitch(cudaMemPoolAttr attribute) {
  return attribute >= cudaMemPoolReuseFollowEventDependencies && attribute <= cudaMemPoolReuseAllowInternalDependencies;
}

}  // namespace
}  // namespace host_cuda::rt

using namespace host_cuda::rt;  // NOLINT: the C interface below belongs to no namespace

extern "C" {

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
  return GivePool(__func__, pool, device);
}

cudaError_t cudaDeviceGetMemPool(cudaMemPool_t* pool, int device) {
  return GivePool(__func__, pool, device);
}

cudaError_t cudaDeviceSetMemPool(int device, cudaMemPool_t pool) {
  return Api(__func__, Rule::kAlways, [&](Runtime& runtime, auto&) {
    const bool own = FindPool(runtime, pool) != nullptr && pool->device == device;
    return own ? cudaSuccess : cudaErrorInvalidValue;
  });
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t handle, cudaMemPoolAttr attribute, void* value) {
  return Api(__func__, Rule::kOrdinary, [&](Runtime& runtime, auto&) {
    Pool* pool = FindPool(runtime, handle);
    if (pool == nullptr || value == nullptr) return cudaErrorInvalidValue;
    if (IsSwitch(attribute)) {
      pool->reuse[attribute] = *static_cast<int*>(value) != 0;
      return cudaSuccess;
    }
    const uint64_t number = *static_cast<uint64_t*>(value);
    if (attribute == cudaMemPoolAttrReleaseThreshold) {
      pool->release_threshold = number;
      return cudaSuccess;
    }
    const bool high = attribute == cudaMemPoolAttrUsedMemHigh || attribute == cudaMemPoolAttrReservedMemHigh;
    if (!high || number != 0) return cudaErrorInvalidValue;
    pool->used_high = 0;
    return cudaSuccess;
  });
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t handle, cudaMemPoolAttr attribute, void* value) {
  return Api(__func__, Rule::kOrdinary, [&](Runtime& runtime, auto&) {
    const Pool* pool = FindPool(runtime, handle);
    if (pool == nullptr || value == nullptr || attribute > cudaMemPoolAttrUsedMemHigh) return cudaErrorInvalidValue;
    if (IsSwitch(attribute)) {
      const auto set = pool->reuse.find(attribute);
      *static_cast<int*>(value) = set == pool->reuse.end() ? 1 : set->second;
    } else {
      *static_cast<uint64_t*>(value) = Attribute(runtime, *pool, handle->device, attribute);
    }
    return cudaSuccess;
  });
}

// There is nothing to give back: the pool keeps none of it.
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t handle, size_t) {
  return Api(__func__, Rule::kOrdinary, [&](Runtime& runtime, auto&) {
    return FindPool(runtime, handle) != nullptr ? cudaSuccess : cudaErrorInvalidValue;
  });
}

cudaError_t cudaMallocFromPoolAsync(void** p, size_t bytes, cudaMemPool_t pool, cudaStream_t stream) {
  int device = -1;
  if (const cudaError_t error = cudaStreamGetDevice(stream, &device)) return error;
  const cudaError_t error = Api(__func__, Rule::kOrdinary, [&](Runtime& runtime, auto&) {
    if (FindPool(runtime, pool) == nullptr) return cudaErrorInvalidValue;
    return pool->device == device ? cudaSuccess : Refuse("cudaMallocFromPoolAsync", "memory of another device's pool");
  });
  return error == cudaSuccess ? cudaMallocAsync(p, bytes, stream) : error;
}

}  // extern "C"
