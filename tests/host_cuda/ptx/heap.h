// malloc and free of device code. The memory is the host's, full of 0xff, so that ASan finds overruns and uses after
// free; it lives on after the kernel, as on a device. Reported: a free of what is no such memory, or twice.
#pragma once

#include "tests/host_cuda/ptx/types.h"

namespace host_cuda::ptx {

inline constexpr u64 kHeapBytes = 8 << 20;  // cudaLimitMallocHeapSize, unless it is set

// 0: the heap is full.
u64 HeapAllocate(u64 bytes);
void HeapFree(u64 address, Loc where);

}  // namespace host_cuda::ptx
