// Allocation: device memory, stream-ordered memory, pinned and registered host memory.
#include <algorithm>

#include "tests/host_cuda/runtime/api.h"
#include "tests/host_cuda/runtime/capture.h"
#include "tests/host_cuda/runtime/injection.h"
#include "tests/host_cuda/runtime/report.h"

using namespace host_cuda::rt;  // NOLINT: the C interface below belongs to no namespace
using host_cuda::DeviceFault;
using host_cuda::DeviceWork;
using host_cuda::Report;

namespace {

// Reports what was found when a block went; it is a fault of the device's, seen late.
cudaError_t Freed(Runtime& runtime, std::unique_lock<std::mutex>& lock, const std::string& wrong) {
  if (wrong.empty()) return cudaSuccess;
  lock.unlock();
  DeviceFault(cudaErrorIllegalAddress, wrong);
  lock.lock();
  return runtime.device(CurrentDevice()).stuck;
}

cudaError_t FreeNow(const char* name, void* p, bool host) {
  return Api(name, Rule::kUnsafeInCapture, [&](Runtime& runtime, auto& lock) {
    if (p == nullptr) return cudaSuccess;
    Block* block = runtime.memory->Find(p);
    if (block == nullptr || block->base != p || block->kind != (host ? MemoryKind::kPinned : MemoryKind::kDevice)) {
      return cudaErrorInvalidValue;
    }
    if (block->freeing || block->state == Block::State::kFreed) {
      Report(std::string(name) + " of memory that is gone: " + Describe(*block));
      return cudaErrorInvalidValue;
    }
    runtime.WaitForDevice(lock, block->device);  // as the real one does
    return Freed(runtime, lock, runtime.memory->Free(block, name));
  });
}

DeviceWork OpenWork(Block* block) {
  DeviceWork work;
  work.name = "cudaMallocAsync";
  work.step = [block] {
    Runtime& runtime = TheRuntime();
    std::lock_guard<std::mutex> lock(runtime.mutex);
    runtime.memory->Open(block);
    return true;
  };
  return work;
}

DeviceWork FreeWork(Block* block) {
  DeviceWork work;
  work.name = "cudaFreeAsync";
  work.step = [block, credit = block->credit] {
    Runtime& runtime = TheRuntime();
    std::unique_lock<std::mutex> lock(runtime.mutex);
    const std::string wrong = runtime.memory->ReachFreeAsync(block, *credit);
    lock.unlock();
    if (!wrong.empty()) DeviceFault(cudaErrorIllegalAddress, wrong);
    return true;
  };
  return work;
}

}  // namespace

extern "C" {

cudaError_t cudaMalloc(void** p, size_t bytes) {
  return Api(
      __func__, Rule::kUnsafeInCapture,
      [&](Runtime& runtime, auto&) {
        *p = nullptr;
        if (bytes == 0) return cudaSuccess;
        Block* block = runtime.memory->Allocate(CurrentDevice(), bytes, /*open=*/true);
        if (block == nullptr) return cudaErrorMemoryAllocation;
        *p = block->base;
        return cudaSuccess;
      },
      bytes);
}

cudaError_t cudaFree(void* p) {
  return FreeNow(__func__, p, /*host=*/false);
}
cudaError_t cudaFreeHost(void* p) {
  return FreeNow(__func__, p, /*host=*/true);
}

cudaError_t cudaHostAlloc(void** p, size_t bytes, unsigned flags) {
  return Api(
      __func__, Rule::kUnsafeInCapture,
      [&](Runtime& runtime, auto&) {
        *p = nullptr;
        if (bytes == 0) return cudaSuccess;
        Block* block = runtime.memory->AllocatePinned(bytes);
        if (block == nullptr) return cudaErrorMemoryAllocation;
        block->flags = flags;
        *p = block->base;
        return cudaSuccess;
      },
      bytes);
}

cudaError_t cudaMallocHost(void** p, size_t bytes) {
  if (const cudaError_t error = Api(__func__, Rule::kAlways, [](Runtime&, auto&) { return cudaSuccess; })) return error;
  return cudaHostAlloc(p, bytes, cudaHostAllocDefault);
}

cudaError_t cudaHostRegister(void* p, size_t bytes, unsigned flags) {
  return Api(__func__, Rule::kUnsafeInCapture, [&](Runtime& runtime, auto&) {
    if (p == nullptr || bytes == 0) return cudaErrorInvalidValue;
    if ((flags & cudaHostRegisterIoMemory) != 0) return Refuse("cudaHostRegister", "memory of other devices");
    if (runtime.memory->Overlaps(p, bytes)) return cudaErrorHostMemoryAlreadyRegistered;
    runtime.memory->Add(p, bytes, MemoryKind::kRegistered, CurrentDevice())->flags = flags;
    return cudaSuccess;
  });
}

cudaError_t cudaHostUnregister(void* p) {
  return Api(__func__, Rule::kUnsafeInCapture, [&](Runtime& runtime, auto& lock) {
    Block* block = runtime.memory->Live(p);
    if (block == nullptr || block->kind != MemoryKind::kRegistered || block->base != p) {
      return cudaErrorHostMemoryNotRegistered;
    }
    runtime.WaitForDevice(lock, CurrentDevice());
    runtime.memory->Forget(block);
    return cudaSuccess;
  });
}

cudaError_t cudaHostGetFlags(unsigned* flags, void* p) {
  return Api(__func__, Rule::kOrdinary, [&](Runtime& runtime, auto&) {
    const Block* block = runtime.memory->Live(p);
    const bool host =
        block != nullptr && (block->kind == MemoryKind::kPinned || block->kind == MemoryKind::kRegistered);
    if (!host) return cudaErrorInvalidValue;
    *flags = block->flags;
    return cudaSuccess;
  });
}

cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned) {
  return Api(__func__, Rule::kOrdinary, [&](Runtime& runtime, auto&) {
    if (runtime.memory->Live(host) == nullptr) return cudaErrorInvalidValue;
    *device = host;
    return cudaSuccess;
  });
}

cudaError_t cudaMallocAsync(void** p, size_t bytes, cudaStream_t stream) {
  return Api(__func__, Rule::kOrdinary, [&](Runtime& runtime, auto& lock) {
    *p = nullptr;
    const auto queue = runtime.Find(stream);
    if (!queue) return cudaErrorInvalidResourceHandle;
    if (bytes == 0) return cudaSuccess;
    if (queue->capture) return RefuseIfCapturing(queue, "cudaMallocAsync (graphs with memory nodes don't exist here)");
    Block* block = runtime.memory->Reuse(queue->device, bytes, queue->id);
    if (block == nullptr) block = runtime.memory->Allocate(queue->device, bytes, /*open=*/false);
    if (block == nullptr) {  // what is being freed may come back
      runtime.WaitForDevice(lock, queue->device);
      block = runtime.memory->Allocate(queue->device, bytes, /*open=*/false);
    }
    if (block == nullptr) return cudaErrorMemoryAllocation;
    block->pooled = true;
    Pool& pool = runtime.device(queue->device).pool;
    pool.used_high = std::max<uint64_t>(pool.used_high, runtime.memory->PoolBytes(queue->device));
    *p = block->base;
    return AppendOrCapture(runtime, queue, OpenWork(block));
  });
}

cudaError_t cudaFreeAsync(void* p, cudaStream_t stream) {
  return Api(__func__, Rule::kOrdinary, [&](Runtime& runtime, auto&) {
    const auto queue = runtime.Find(stream);
    if (!queue) return cudaErrorInvalidResourceHandle;
    if (p == nullptr) return cudaSuccess;
    if (queue->capture) return RefuseIfCapturing(queue, "cudaFreeAsync (graphs with memory nodes don't exist here)");
    Block* block = runtime.memory->Find(p);
    if (block == nullptr || block->base != p || block->kind != MemoryKind::kDevice) return cudaErrorInvalidValue;
    if (block->freeing || block->state == Block::State::kFreed) {
      Report("cudaFreeAsync of memory that is gone: " + Describe(*block));
      return cudaErrorInvalidValue;
    }
    block->pooled = true;
    runtime.memory->BeginFree(block, queue->id);
    return AppendOrCapture(runtime, queue, FreeWork(block));
  });
}

cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total) {
  return Api(__func__, Rule::kOrdinary, [&](Runtime& runtime, auto&) {
    *total = runtime.memory->total();
    *free_bytes = *total - runtime.memory->used(CurrentDevice());
    return cudaSuccess;
  });
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* p) {
  return Api(__func__, Rule::kOrdinary, [&](Runtime& runtime, auto&) {
    *attributes = {};
    Block* block = runtime.memory->Live(p);
    if (block == nullptr) {
      attributes->type = cudaMemoryTypeUnregistered;
      attributes->device = -2;  // cudaInvalidDeviceId
      return cudaSuccess;
    }
    const bool device = block->kind == MemoryKind::kDevice || block->kind == MemoryKind::kImported;
    attributes->type = device ? cudaMemoryTypeDevice : cudaMemoryTypeHost;
    attributes->device = block->device;
    attributes->devicePointer = const_cast<void*>(p);
    attributes->hostPointer = device ? nullptr : const_cast<void*>(p);
    return cudaSuccess;
  });
}

}  // extern "C"
