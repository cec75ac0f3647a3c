// Copies from global to shared memory that run beside the arithmetic (cp.async, sm_80).
//
// A thread waits for its own copies only (AwaitAsyncCopies); what other threads copied is there after a barrier behind
// that.
#pragma once

#include <cstdint>

namespace sluice::kernels::cuda {

__device__ inline uint32_t SharedAddress(const void* pointer) {
  return uint32_t(__cvta_generic_to_shared(pointer));
}

// 16 bytes, both addresses aligned to 16. `valid` false: zeros, and the source is not read.
__device__ inline void CopyAsync16(void* shared, const void* global, bool valid = true) {
  const int bytes = valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(SharedAddress(shared)), "l"(global), "r"(bytes)
               : "memory");
}

__device__ inline void CommitAsyncCopies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// Until at most kPending of the committed groups are under way.
template <int kPending>
__device__ inline void AwaitAsyncCopies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

}  // namespace sluice::kernels::cuda
