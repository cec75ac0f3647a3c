// Copies and fills. As the real ones: from pageable memory the bytes are taken before the call returns, into pageable
// memory they have come when it returns; pinned memory is read and written when the stream gets there; a copy from
// device to device, and cudaMemset, return at once even without Async in their names.
#include <cstring>
#include <memory>
#include <vector>

#include "tests/host_cuda/engine/grid.h"
#include "tests/host_cuda/runtime/api.h"
#include "tests/host_cuda/runtime/capture.h"
#include "tests/host_cuda/runtime/errors.h"
#include "tests/host_cuda/runtime/injection.h"
#include "tests/host_cuda/runtime/module.h"
#include "tests/host_cuda/runtime/pinned_watch.h"

using namespace host_cuda::rt;  // NOLINT: the C interface below belongs to no namespace
using host_cuda::CheckAccess;
using host_cuda::DeviceFault;
using host_cuda::DeviceWork;
using host_cuda::Found;

namespace {

enum class Side { kDevice, kPinned, kPageable };

Side SideOf(Runtime& runtime, const void* p) {
  const Block* block = runtime.memory->Find(p);
  if (block != nullptr) {
    const bool device = block->kind == MemoryKind::kDevice || block->kind == MemoryKind::kImported;
    return device ? Side::kDevice : Side::kPinned;
  }
  for (int d = 0; d < runtime.settings.devices; ++d) {
    if (runtime.memory->arena(d).Contains(p)) return Side::kDevice;
  }
  return IsVariable(p) ? Side::kDevice : Side::kPageable;
}

bool KindFits(cudaMemcpyKind kind, Side to, Side from) {
  const bool to_device = to == Side::kDevice, from_device = from == Side::kDevice;
  // Pinned memory is mapped, so it counts as memory of the device as well.
  switch (kind) {
    case cudaMemcpyDefault:
      return true;
    case cudaMemcpyHostToDevice:
      return !from_device && to != Side::kPageable;
    case cudaMemcpyDeviceToHost:
      return !to_device && from != Side::kPageable;
    case cudaMemcpyDeviceToDevice:
      return to != Side::kPageable && from != Side::kPageable;
    case cudaMemcpyHostToHost:
      return !to_device && !from_device;
  }
  return false;
}

// Whether the block that p is in, if any, holds all of it: what the real one checks in the call.
bool Within(Runtime& runtime, const void* p, size_t bytes) {
  const Block* block = runtime.memory->Find(p);
  if (block == nullptr) return true;
  return static_cast<size_t>(static_cast<const char*>(p) - block->base) + bytes <= block->bytes;
}

bool Failed(const std::string& what) {
  const auto fail = host_cuda::FailsOnPurpose("copy");
  if (!fail) return false;
  DeviceFault(ErrorNamed(*fail).value_or(cudaErrorUnknown), what + " fails on purpose (HOST_CUDA_FAIL)");
  return true;
}

struct Operands {
  std::string name;
  void* to = nullptr;
  const void* from = nullptr;
  size_t bytes = 0;
};

void DoCopy(const Operands& o, const PinnedWatch* watch) {
  const std::string what = o.name + " of " + std::to_string(o.bytes) + " bytes";
  if (Failed(what)) return;
  const std::string source = CheckAccess(o.from, o.bytes), target = CheckAccess(o.to, o.bytes);
  if (!source.empty()) return DeviceFault(cudaErrorIllegalAddress, what + " reads what it must not: " + source);
  if (!target.empty()) return DeviceFault(cudaErrorIllegalAddress, what + " writes where it must not: " + target);
  if (watch != nullptr) {
    const std::string changed = watch->Changed();
    // Not an error of the device: it copies what is there.
    if (!changed.empty()) Found(what + " from " + changed + ", which the host changed after the call, before the copy");
  }
  std::memmove(o.to, o.from, o.bytes);
  NoteDeviceWrite(o.to);
}

// `watched`: the source is memory that the host may change meanwhile. With the runtime's mutex held.
DeviceWork CopyWork(const Operands& o, bool watched) {
  const auto watch = watched ? PinnedWatch::Begin(o.from, o.bytes) : nullptr;
  DeviceWork work;
  work.name = o.name;
  work.kind = DeviceWork::Kind::kCopy;
  work.step = [o, watch] {
    DoCopy(o, watch.get());
    return true;
  };
  work.fresh = [o, watched] {
    std::lock_guard<std::mutex> lock(TheRuntime().mutex);
    return CopyWork(o, watched);
  };
  return work;
}

cudaError_t Copy(const char* name, void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream,
                 bool async) {
  return Api(name, async ? Rule::kOrdinary : Rule::kUnsafeInCapture, [&](Runtime& runtime, auto& lock) {
    const auto queue = runtime.Find(stream);
    if (!queue) return cudaErrorInvalidResourceHandle;
    if (bytes == 0) return cudaSuccess;
    const Side to_side = SideOf(runtime, to), from_side = SideOf(runtime, from);
    if (to == nullptr || from == nullptr || !KindFits(kind, to_side, from_side)) return cudaErrorInvalidValue;
    if (!Within(runtime, to, bytes) || !Within(runtime, from, bytes)) return cudaErrorInvalidValue;
    const bool watched = from_side != Side::kDevice;
    if (queue->capture) return AppendOrCapture(runtime, queue, CopyWork({name, to, from, bytes}, watched));

    DeviceWork work;
    if (from_side == Side::kPageable && to_side != Side::kPageable) {
      const char* source = static_cast<const char*>(from);
      auto staged = std::make_shared<std::vector<char>>(source, source + bytes);
      work = CopyWork({name, to, staged->data(), bytes}, /*watched=*/false);
      work.step = [staged, step = work.step] { return step(); };
    } else {
      work = CopyWork({name, to, from, bytes}, watched);
    }
    const cudaError_t error = AppendOrCapture(runtime, queue, std::move(work));
    if (error != cudaSuccess) return error;
    const bool both_device = to_side == Side::kDevice && from_side == Side::kDevice;
    const bool pinned_source = from_side == Side::kPinned && to_side == Side::kDevice;
    const bool wait = async ? to_side == Side::kPageable : (to_side != Side::kDevice || pinned_source) && !both_device;
    if (wait) runtime.Wait(lock, {queue, queue->issued});
    return runtime.device(queue->device).stuck;
  });
}

cudaError_t Fill(const char* name, void* p, int value, size_t bytes, cudaStream_t stream, bool async) {
  return Api(name, async ? Rule::kOrdinary : Rule::kUnsafeInCapture, [&](Runtime& runtime, auto& lock) {
    const auto queue = runtime.Find(stream);
    if (!queue) return cudaErrorInvalidResourceHandle;
    if (bytes == 0) return cudaSuccess;
    const Side side = SideOf(runtime, p);
    if (side == Side::kPageable || !Within(runtime, p, bytes)) return cudaErrorInvalidValue;
    DeviceWork work = host_cuda::Repeatable(name, DeviceWork::Kind::kSet, [=, text = std::string(name)] {
      const std::string wrong = CheckAccess(p, bytes);
      if (!wrong.empty()) return DeviceFault(cudaErrorIllegalAddress, text + " writes where it must not: " + wrong);
      std::memset(p, value, bytes);
      NoteDeviceWrite(p);
    });
    const cudaError_t error = AppendOrCapture(runtime, queue, std::move(work));
    if (error == cudaSuccess && !async && side == Side::kPinned) runtime.Wait(lock, {queue, queue->issued});
    return error;
  });
}

cudaError_t CopySymbol(const char* name, const void* symbol, size_t offset, size_t bytes, const void* from, void* to,
                       cudaMemcpyKind kind, cudaStream_t stream, bool async) {
  const host_cuda::rt::Symbol found = FindSymbol(symbol);
  if (found.address == nullptr) return Remember(cudaErrorInvalidSymbol);
  if (offset + bytes > found.bytes) return Remember(cudaErrorInvalidValue);
  char* address = static_cast<char*>(found.address) + offset;
  return from != nullptr ? Copy(name, address, from, bytes, kind, stream, async)
                         : Copy(name, to, address, bytes, kind, stream, async);
}

}  // namespace

extern "C" {

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  return Copy(__func__, to, from, bytes, kind, nullptr, /*async=*/false);
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  return Copy(__func__, to, from, bytes, kind, stream, /*async=*/true);
}

cudaError_t cudaMemcpyPeer(void* to, int, const void* from, int, size_t bytes) {
  return Copy(__func__, to, from, bytes, cudaMemcpyDeviceToDevice, nullptr, /*async=*/false);
}

cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t bytes, cudaStream_t stream) {
  return Copy(__func__, to, from, bytes, cudaMemcpyDeviceToDevice, stream, /*async=*/true);
}

cudaError_t cudaMemset(void* p, int value, size_t bytes) {
  return Fill(__func__, p, value, bytes, nullptr, false);
}

cudaError_t cudaMemsetAsync(void* p, int value, size_t bytes, cudaStream_t stream) {
  return Fill(__func__, p, value, bytes, stream, /*async=*/true);
}

cudaError_t cudaMemcpyToSymbol(const void* symbol, const void* from, size_t bytes, size_t offset, cudaMemcpyKind kind) {
  return CopySymbol(__func__, symbol, offset, bytes, from, nullptr, kind, nullptr, false);
}

cudaError_t cudaMemcpyFromSymbol(void* to, const void* symbol, size_t bytes, size_t offset, cudaMemcpyKind kind) {
  return CopySymbol(__func__, symbol, offset, bytes, nullptr, to, kind, nullptr, false);
}

cudaError_t cudaMemcpyToSymbolAsync(const void* symbol, const void* from, size_t bytes, size_t offset,
                                    cudaMemcpyKind kind, cudaStream_t stream) {
  return CopySymbol(__func__, symbol, offset, bytes, from, nullptr, kind, stream, true);
}

cudaError_t cudaMemcpyFromSymbolAsync(void* to, const void* symbol, size_t bytes, size_t offset, cudaMemcpyKind kind,
                                      cudaStream_t stream) {
  return CopySymbol(__func__, symbol, offset, bytes, nullptr, to, kind, stream, true);
}

cudaError_t cudaGetSymbolAddress(void** p, const void* symbol) {
  const host_cuda::rt::Symbol found = FindSymbol(symbol);
  if (found.address == nullptr) return Remember(cudaErrorInvalidSymbol);
  *p = found.address;
  return cudaSuccess;
}

cudaError_t cudaGetSymbolSize(size_t* bytes, const void* symbol) {
  const host_cuda::rt::Symbol found = FindSymbol(symbol);
  if (found.address == nullptr) return Remember(cudaErrorInvalidSymbol);
  *bytes = found.bytes;
  return cudaSuccess;
}

cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                              size_t height, cudaMemcpyKind kind, cudaStream_t stream) {
  // Row by row: what a stream orders stays in order.
  for (size_t row = 0; row < height; ++row) {
    const cudaError_t error = Copy(__func__, static_cast<char*>(to) + row * to_pitch,
                                   static_cast<const char*>(from) + row * from_pitch, width, kind, stream, true);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

}  // extern "C"
