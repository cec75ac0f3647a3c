// cp.async, as late as allowed: see engine/async_copy.h.
#pragma once

#include "tests/host_cuda/engine/async_copy.h"
#include "tests/host_cuda/ptx/memory.h"

namespace host_cuda::ptx {

HOST_CUDA_CALLED void CopyAsync(SharedWindow window, u64 to, u64 from, u32 bytes, u32 valid,
                                Loc where = Loc::current()) {
  if (valid > bytes) Fail(where, "cp.async of %u bytes with a source of %u", bytes, valid);
  CheckAddress<Space::kShared>(window, to, bytes, where);
  if (valid != 0) CheckAddress<Space::kGlobal>(window, from, bytes, where);
  for (u32 i = 0; i < valid; ++i) (void)*reinterpret_cast<const volatile u8*>(from + i);  // it must be there now, too
  for (u32 i = 0; i < bytes; ++i) reinterpret_cast<volatile u8*>(to)[i] = 0xff;  // TSan misses an inlined memset
  IssueCopy({reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes, valid});
}

inline void Arrive(const std::vector<AsyncCopy>& group) {
  for (const AsyncCopy& copy : group) {
    std::memcpy(copy.to, copy.from, copy.valid);
    std::memset(static_cast<char*>(copy.to) + copy.valid, 0, copy.bytes - copy.valid);
  }
}
HOST_CUDA_CALLED void WaitGroup(u32 pending) {
  std::vector<AsyncCopy> group;
  while (TakeGroup(pending, &group)) Arrive(group);
}
HOST_CUDA_CALLED void WaitAll() {
  std::vector<AsyncCopy> group;
  while (TakeAny(&group)) Arrive(group);
}

}  // namespace host_cuda::ptx
