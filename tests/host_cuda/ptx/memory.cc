#include "tests/host_cuda/ptx/memory.h"

namespace host_cuda::ptx {

void FailMisaligned(u64 address, u64 bytes, Loc where) {
  Fail(where, "misaligned address 0x%llx of a %llu-byte access", static_cast<unsigned long long>(address),
       static_cast<unsigned long long>(bytes));
}

void FailOutside(u64 address, SharedWindow window, bool wants_shared, Loc where) {
  const auto a = static_cast<unsigned long long>(address), begin = static_cast<unsigned long long>(window.begin);
  const auto end = static_cast<unsigned long long>(window.end);
  if (wants_shared)
    Fail(where, "shared memory overrun: address 0x%llx, the block's is 0x%llx to 0x%llx", a, begin, end);
  Fail(where, "a global access to shared memory: address 0x%llx", a);
}

}  // namespace host_cuda::ptx
