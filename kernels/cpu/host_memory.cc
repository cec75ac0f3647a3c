#include "kernels/cpu/host_memory.h"

#include <sys/mman.h>

namespace sluice::kernels::cpu {

std::optional<HostMemory> HostMemory::Map(size_t bytes) {
  if (bytes == 0) return HostMemory();
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return std::nullopt;
  if (bytes >= (size_t{2} << 20)) madvise(p, bytes, MADV_HUGEPAGE);  // as good without
  return HostMemory(static_cast<std::byte*>(p), bytes);
}

HostMemory::~HostMemory() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

}  // namespace sluice::kernels::cpu
