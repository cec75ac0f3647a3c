// What the pretended devices are: an A100's figures with few multiprocessors (sm_80 code is what runs on them).
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "tests/host_cuda/engine/limits.h"

namespace host_cuda::rt {

inline constexpr int kMultiprocessors = 8;
inline constexpr int kThreadsPerMultiprocessor = 2048;
inline constexpr int kBlocksPerMultiprocessor = 32;
inline constexpr size_t kSharedPerMultiprocessor = 164 << 10;
inline constexpr size_t kSharedPerBlock = kMaxSharedWithoutOptIn;
inline constexpr size_t kSharedPerBlockOptIn = kMaxSharedPerBlock;
inline constexpr int kLeastPriority = 0, kGreatestPriority = -5;  // of streams
inline constexpr size_t kSharedReserved = 1 << 10;                // of each block, by the system

cudaDeviceProp PropertiesOf(int device, size_t memory);

// false: not an attribute that is known here.
bool AttributeOf(cudaDeviceAttr attribute, int device, int* value);

}  // namespace host_cuda::rt
