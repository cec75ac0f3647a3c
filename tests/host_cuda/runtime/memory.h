// All memory that the runtime knows: of each device, pinned, registered, and mapped from other processes. Keeps what
// was freed as well, so that a late use can be named. Not thread-safe: the runtime's mutex guards it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/host_cuda/runtime/arena.h"

namespace host_cuda::rt {

enum class MemoryKind { kDevice, kPinned, kRegistered, kImported };

struct Block {
  enum class State { kLive, kNotYet, kFreed };  // kNotYet: its cudaMallocAsync has not been reached in its stream

  char* base = nullptr;
  size_t bytes = 0;
  MemoryKind kind = MemoryKind::kDevice;
  int device = 0;
  uint64_t number = 0;  // the n-th block of the process
  State state = State::kLive;
  bool pooled = false;           // of cudaMallocAsync
  bool freeing = false;          // a cudaFreeAsync is in a stream
  uint64_t stream = 0;           // of the cudaFreeAsync
  std::shared_ptr<bool> credit;  // whether that cudaFreeAsync gives the bytes back when it is reached
  std::string freed_by;
  uint64_t device_writes = 0;  // copies and fills of the device into it
  unsigned flags = 0;          // of pinned and registered memory
};

class Memory {
 public:
  Memory(int devices, size_t bytes_each, uint64_t seed);
  ~Memory();

  // Device memory; nullptr: the device has no more. `open`: usable now, not when a stream gets there.
  Block* Allocate(int device, size_t bytes, bool open);
  // For cudaMallocAsync: in half of the cases a block of the same size that the same stream frees; it becomes kNotYet.
  Block* Reuse(int device, size_t bytes, uint64_t stream);
  Block* AllocatePinned(size_t bytes);
  Block* Add(void* base, size_t bytes, MemoryKind kind, int device);  // registered or imported
  void Forget(Block* block);                                          // registered or imported

  void Open(Block* block);
  void BeginFree(Block* block, uint64_t stream);
  // The stream got to the cudaFreeAsync. gives_back: nobody took the block over meanwhile (Block::credit at BeginFree).
  std::string ReachFreeAsync(Block* block, const bool& gives_back);
  // Both: empty: fine; else what is wrong with the block, such as a write past its end.
  std::string Free(Block* block, const std::string& by);

  // The block that holds p, a freed one as well; nullptr: unknown, so pageable memory of the host.
  Block* Find(const void* p);
  const Block* FindBefore(const void* p) const;  // the last that begins before p
  Block* Live(const void* p);                    // nullptr: unknown or freed

  size_t used(int device) const { return used_[static_cast<size_t>(device)]; }
  size_t PoolBytes(int device) const;  // of cudaMallocAsync, not yet reached by their cudaFreeAsync
  // Whether some block that is not freed has bytes in [p, p + bytes).
  bool Overlaps(const void* p, size_t bytes) const;
  size_t total() const { return total_; }
  Arena& arena(int device) { return *arenas_[static_cast<size_t>(device)]; }

 private:
  void ReleasePool(int device);
  void ForgetFreedIn(const char* begin, const char* end);

  size_t total_;
  uint64_t made_ = 0;
  std::vector<size_t> used_;
  std::vector<std::unique_ptr<Arena>> arenas_;
  std::map<const char*, Block> blocks_;
  std::mt19937_64 random_;
};

// "device memory #7 (4096 bytes on device 0), freed by cudaFreeAsync"
std::string Describe(const Block& block);

}  // namespace host_cuda::rt
