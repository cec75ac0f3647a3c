#include "tests/host_cuda/ptx/heap.h"

#include <cstdlib>
#include <map>
#include <mutex>

#include "tests/host_cuda/engine/sanitizers.h"

namespace host_cuda::ptx {
namespace {

struct Heap {
  std::mutex mutex;
  std::map<u64, u64> blocks;  // address: bytes
  u64 used = 0;
};

// Never destroyed: it keeps what no kernel freed reachable.
Heap& TheHeap() {
  static auto* heap = new Heap;
  return *heap;
}

}  // namespace

u64 HeapAllocate(u64 bytes) {
  EngineScope scope;
  Heap& heap = TheHeap();
  const std::lock_guard lock(heap.mutex);
  if (bytes > kHeapBytes - heap.used) return 0;
  void* const memory = std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) return 0;
  std::memset(memory, 0xff, bytes);
  heap.used += bytes;
  heap.blocks[reinterpret_cast<u64>(memory)] = bytes;
  return reinterpret_cast<u64>(memory);
}

void HeapFree(u64 address, Loc where) {
  if (address == 0) return;
  bool known = false;
  {
    EngineScope scope;
    Heap& heap = TheHeap();
    const std::lock_guard lock(heap.mutex);
    if (const auto found = heap.blocks.find(address); found != heap.blocks.end()) {
      known = true;
      heap.used -= found->second;
      heap.blocks.erase(found);
      std::free(reinterpret_cast<void*>(address));
    }
  }
  if (!known) Fail(where, "free of 0x%llx, which is no memory of malloc", static_cast<unsigned long long>(address));
}

}  // namespace host_cuda::ptx
