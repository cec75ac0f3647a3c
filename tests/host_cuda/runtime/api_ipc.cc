// Memory and events shared between processes. A handle names the process that made it and its anonymous file, which the
// other opens through /proc: so the maker has to be alive and of the same user when it is opened, and nothing is left
// behind when either is killed.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <string>

#include "tests/host_cuda/runtime/api.h"
#include "tests/host_cuda/runtime/event.h"
#include "tests/host_cuda/runtime/report.h"

namespace host_cuda::rt {
namespace {

constexpr uint64_t kMagic = 0x3143504961647543;  // marks our handles
constexpr size_t kPage = 4096;

struct Handle {
  uint64_t magic = 0;
  int pid = 0, file = -1;
  uint64_t offset = 0, bytes = 0, number = 0;
};
static_assert(sizeof(Handle) <= CUDA_IPC_HANDLE_SIZE);

template <class Cuda>
Handle Unpack(const Cuda& from) {
  Handle handle;
  std::memcpy(&handle, from.reserved, sizeof handle);
  return handle;
}

template <class Cuda>
void Pack(const Handle& handle, Cuda* to) {
  std::memset(to->reserved, 0, sizeof to->reserved);
  std::memcpy(to->reserved, &handle, sizeof handle);
}

// The bytes of the file from a page's start on; nullptr: the maker or its file is gone.
char* Map(const Handle& handle, size_t first, size_t bytes) {
  const std::string path = "/proc/" + std::to_string(handle.pid) + "/fd/" + std::to_string(handle.file);
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return nullptr;
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, static_cast<off_t>(first));
  close(file);
  return p == MAP_FAILED ? nullptr : static_cast<char*>(p);
}

struct Opened {
  char* pages = nullptr;
  size_t bytes = 0;
  char* base = nullptr;
  int count = 0;
};

using Key = std::pair<int, uint64_t>;  // process, block

// Guarded by the runtime's mutex.
std::map<Key, Opened>& TheOpened() {
  static auto& opened = *new std::map<Key, Opened>;
  return opened;
}

cudaError_t OpenMemory(Runtime& runtime, const Handle& handle, void** p) {
  if (handle.magic != kMagic) return cudaErrorInvalidResourceHandle;
  if (handle.pid == getpid()) return cudaErrorDeviceUninitialized;  // what the real one says to its own handle
  Opened& opened = TheOpened()[{handle.pid, handle.number}];
  if (opened.count == 0) {
    const size_t first = handle.offset / kPage * kPage, slack = handle.offset - first;
    opened.bytes = slack + handle.bytes;
    opened.pages = Map(handle, first, opened.bytes);
    if (opened.pages == nullptr) {
      Report("cudaIpcOpenMemHandle: the process " + std::to_string(handle.pid) + " that made the handle is gone");
      TheOpened().erase({handle.pid, handle.number});
      return cudaErrorMapBufferObjectFailed;
    }
    opened.base = opened.pages + slack;
    runtime.memory->Add(opened.base, handle.bytes, MemoryKind::kImported, CurrentDevice());
  }
  ++opened.count;
  *p = opened.base;
  return cudaSuccess;
}

}  // namespace
}  // namespace host_cuda::rt

using namespace host_cuda::rt;  // NOLINT: the C interface below belongs to no namespace

extern "C" {

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* out, void* p) {
  return Api(__func__, Rule::kOrdinary, [&](Runtime& runtime, auto&) {
    const Block* block = runtime.memory->Live(p);
    if (block == nullptr || block->kind != MemoryKind::kDevice || block->pooled) return cudaErrorInvalidValue;
    Arena& arena = runtime.memory->arena(block->device);
    Pack(Handle{kMagic, getpid(), arena.file(), arena.OffsetOf(block->base), block->bytes, block->number}, out);
    return cudaSuccess;
  });
}

cudaError_t cudaIpcOpenMemHandle(void** p, cudaIpcMemHandle_t handle, unsigned flags) {
  return Api(__func__, Rule::kUnsafeInCapture, [&](Runtime& runtime, auto&) {
    if (flags != cudaIpcMemLazyEnablePeerAccess) return cudaErrorInvalidValue;
    return OpenMemory(runtime, Unpack(handle), p);
  });
}

cudaError_t cudaIpcCloseMemHandle(void* p) {
  return Api(__func__, Rule::kUnsafeInCapture, [&](Runtime& runtime, auto& lock) {
    for (auto& [key, opened] : TheOpened()) {
      if (opened.base != p) continue;
      if (--opened.count > 0) return cudaSuccess;
      runtime.WaitForDevice(lock, CurrentDevice());
      runtime.memory->Forget(runtime.memory->Find(p));
      munmap(opened.pages, opened.bytes);
      TheOpened().erase(key);
      return cudaSuccess;
    }
    return cudaErrorInvalidValue;
  });
}

cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t* out, cudaEvent_t event) {
  return Api(__func__, Rule::kOrdinary, [&](Runtime&, auto&) {
    const auto state = FindEvent(event);
    if (!state || !state->shared_on_request) return cudaErrorInvalidResourceHandle;
    Pack(Handle{kMagic, getpid(), state->file, 0, sizeof(SharedEvent), 0}, out);
    return cudaSuccess;
  });
}

cudaError_t cudaIpcOpenEventHandle(cudaEvent_t* event, cudaIpcEventHandle_t cuda_handle) {
  return Api(__func__, Rule::kOrdinary, [&](Runtime&, auto&) {
    const Handle handle = Unpack(cuda_handle);
    if (handle.magic != kMagic) return cudaErrorInvalidResourceHandle;
    char* page = Map(handle, 0, kPage);
    if (page == nullptr) return cudaErrorMapBufferObjectFailed;
    auto state = std::make_shared<EventState>();
    state->timed = false;
    state->shared =
        std::shared_ptr<SharedEvent>(reinterpret_cast<SharedEvent*>(page), [](SharedEvent* p) { munmap(p, kPage); });
    *event = AddEvent(std::move(state));
    return cudaSuccess;
  });
}

}  // extern "C"
