// The memory of one pretended device: address space over an anonymous file, so that another process can map what
// CUDA-IPC hands it and nothing is left behind when a process is killed. A block ends at a page that can't be touched
// and its neighbours are never adjacent, so an overrun of a page or more, and any use of a freed block, faults at once;
// AddressSanitizer sees each byte. Addresses come back into use only when the address space (64 GiB) has been gone
// through. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

namespace host_cuda::rt {

class Arena {
 public:
  Arena();
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Aligned to 256 bytes; not accessible until Open. nullptr: no address space left.
  char* Allocate(size_t bytes);
  void Open(char* base);   // accessible, filled with 0xff
  void Close(char* base);  // any access faults; the memory goes back to the system
  // What stands in the bytes that round the block up: false: something wrote past its end.
  bool TailIntact(char* base) const;
  void Release(char* base);  // closes it and forgets it

  bool Contains(const void* p) const;
  int file() const { return file_; }
  size_t OffsetOf(const char* base) const { return static_cast<size_t>(base - start_); }

 private:
  struct Block {
    size_t first_page = 0, pages = 0, bytes = 0;  // without the guard page after it
  };
  const Block& Of(const char* base) const { return blocks_.at(base); }

  char* start_ = nullptr;
  int file_ = -1;
  size_t next_page_ = 1;
  std::map<const char*, Block> blocks_;
  std::map<size_t, size_t> taken_;  // first page -> pages, guard included
};

}  // namespace host_cuda::rt
