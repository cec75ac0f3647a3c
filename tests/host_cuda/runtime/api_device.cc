// Devices: how many, what they are, which one is current, peers, synchronisation, reset.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "tests/host_cuda/runtime/api.h"
#include "tests/host_cuda/runtime/control.h"
#include "tests/host_cuda/runtime/handles.h"
#include "tests/host_cuda/runtime/properties.h"
#include "tests/host_cuda/runtime/report.h"

namespace host_cuda::rt {
namespace {

constexpr size_t kNoLimit = ~size_t{0};

// Kept, not obeyed; those of dynamic parallelism and of L2 are not here.
size_t DefaultLimit(cudaLimit limit) {
  switch (limit) {
    case cudaLimitStackSize:
      return 1 << 10;
    case cudaLimitPrintfFifoSize:
      return 1 << 20;
    case cudaLimitMallocHeapSize:
      return 8 << 20;
    default:
      return kNoLimit;
  }
}

bool Exists(const Runtime& runtime, int device) {
  return device >= 0 && device < runtime.settings.devices;
}

// No work runs, and none will: what waits in streams is dropped.
void DropWorks(Runtime& runtime, std::unique_lock<std::mutex>& lock) {
  for (auto& device : runtime.devices) {
    for (auto& queue : device->queues) {
      while (queue->running) runtime.work_done.wait_for(lock, std::chrono::milliseconds(1));
      queue->done = queue->issued;  // whoever waits for them goes on
    }
    device->queues.clear();
  }
  runtime.work_done.notify_all();
  ForgetStreams(runtime);
  ForgetEvents();
  ForgetGraphs();
}

}  // namespace
}  // namespace host_cuda::rt

namespace host_cuda {

void Restart() {
  rt::Runtime& runtime = rt::TheRuntime();
  std::unique_lock<std::mutex> lock(runtime.mutex);
  rt::DropWorks(runtime, lock);
  runtime.Reset(rt::SettingsFromEnvironment());
  rt::CurrentDevice() = 0;
  lock.unlock();
  cudaGetLastError();
}

}  // namespace host_cuda

using namespace host_cuda::rt;  // NOLINT: the C interface below belongs to no namespace

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  return Api(__func__, Rule::kAlways, [&](Runtime& runtime, auto&) {
    *count = runtime.settings.devices;
    return *count == 0 ? cudaErrorNoDevice : cudaSuccess;
  });
}

cudaError_t cudaSetDevice(int device) {
  return Api(__func__, Rule::kAlways, [&](Runtime& runtime, auto&) {
    if (!Exists(runtime, device)) return runtime.settings.devices == 0 ? cudaErrorNoDevice : cudaErrorInvalidDevice;
    CurrentDevice() = device;
    return runtime.device(device).stuck;
  });
}

cudaError_t cudaGetDevice(int* device) {
  return Api(__func__, Rule::kAlways, [&](Runtime& runtime, auto&) {
    *device = CurrentDevice();
    return runtime.settings.devices == 0 ? cudaErrorNoDevice : cudaSuccess;
  });
}

cudaError_t cudaInitDevice(int device, unsigned, unsigned) {
  return Api(__func__, Rule::kAlways,
             [&](Runtime& runtime, auto&) { return Exists(runtime, device) ? cudaSuccess : cudaErrorInvalidDevice; });
}

cudaError_t cudaSetDeviceFlags(unsigned) {
  return Api(__func__, Rule::kAlways, [](Runtime&, auto&) { return cudaSuccess; });
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  return Api(__func__, Rule::kAlways, [&](Runtime& runtime, auto&) {
    if (!Exists(runtime, device)) return cudaErrorInvalidDevice;
    *properties = PropertiesOf(device, runtime.settings.memory);
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  return Api(__func__, Rule::kAlways, [&](Runtime& runtime, auto&) {
    if (!Exists(runtime, device)) return cudaErrorInvalidDevice;
    return AttributeOf(attribute, device, value) ? cudaSuccess : cudaErrorInvalidValue;
  });
}

cudaError_t cudaDeviceGetPCIBusId(char* id, int length, int device) {
  return Api(__func__, Rule::kAlways, [&](Runtime& runtime, auto&) {
    if (!Exists(runtime, device)) return cudaErrorInvalidDevice;
    std::snprintf(id, static_cast<size_t>(length), "0000:%02X:00.0", device + 1);
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetByPCIBusId(int* device, const char* id) {
  return Api(__func__, Rule::kAlways, [&](Runtime& runtime, auto&) {
    unsigned bus = 0;
    if (std::sscanf(id, "%*x:%x:", &bus) != 1 || !Exists(runtime, static_cast<int>(bus) - 1))
      return cudaErrorInvalidDevice;
    *device = static_cast<int>(bus) - 1;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return Api(__func__, Rule::kAlways, [&](Runtime&, auto&) {
    if (least != nullptr) *least = kLeastPriority;
    if (greatest != nullptr) *greatest = kGreatestPriority;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceSynchronize() {
  return Api(__func__, Rule::kUnsafeInCapture, [](Runtime& runtime, auto& lock) {
    runtime.WaitForDevice(lock, CurrentDevice());
    return runtime.device(CurrentDevice()).stuck;
  });
}

// With one device it makes the process as new; with several only the error of the current one goes (real contexts are
// apart, here they share the table of memory).
cudaError_t cudaDeviceReset() {
  Runtime& runtime = TheRuntime();
  std::unique_lock<std::mutex> lock(runtime.mutex);
  if (runtime.settings.devices <= 1) {
    DropWorks(runtime, lock);
    runtime.Reset(runtime.settings);
  } else {
    runtime.WaitForDevice(lock, CurrentDevice());
    runtime.device(CurrentDevice()).stuck = cudaSuccess;
  }
  return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  return Api(__func__, Rule::kAlways, [&](Runtime& runtime, auto&) {
    if (!Exists(runtime, device) || !Exists(runtime, peer)) return cudaErrorInvalidDevice;
    *can = device != peer;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
  return Api(__func__, Rule::kOrdinary, [&](Runtime& runtime, auto&) {
    if (flags != 0) return cudaErrorInvalidValue;
    if (!Exists(runtime, peer) || peer == CurrentDevice()) return cudaErrorInvalidDevice;
    const bool is_new = runtime.device(CurrentDevice()).peers.insert(peer).second;
    return is_new ? cudaSuccess : cudaErrorPeerAccessAlreadyEnabled;
  });
}

cudaError_t cudaDeviceDisablePeerAccess(int peer) {
  return Api(__func__, Rule::kOrdinary, [&](Runtime& runtime, auto&) {
    if (!Exists(runtime, peer)) return cudaErrorInvalidDevice;
    return runtime.device(CurrentDevice()).peers.erase(peer) != 0 ? cudaSuccess : cudaErrorPeerAccessNotEnabled;
  });
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaDeviceSetLimit(cudaLimit limit, size_t value) {
  return Api(__func__, Rule::kOrdinary, [&](Runtime& runtime, auto&) {
    if (DefaultLimit(limit) == kNoLimit) {
      host_cuda::Report("cudaDeviceSetLimit: limit " + std::to_string(limit) + " is not in the test runtime");
      return cudaErrorUnsupportedLimit;
    }
    runtime.device(CurrentDevice()).limits[limit] = value;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetLimit(size_t* value, cudaLimit limit) {
  return Api(__func__, Rule::kOrdinary, [&](Runtime& runtime, auto&) {
    if (DefaultLimit(limit) == kNoLimit) return cudaErrorUnsupportedLimit;
    const auto& set = runtime.device(CurrentDevice()).limits;
    const auto found = set.find(limit);
    *value = found == set.end() ? DefaultLimit(limit) : found->second;
    return cudaSuccess;
  });
}

}  // extern "C"
