// What a launch may ask of the device that the tests pretend to have: an A100's figures, as sm_80 code is what they
// run. The runtime's device properties repeat them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace host_cuda {

inline constexpr uint32_t kWarpSize = 32;
inline constexpr uint32_t kMaxThreadsPerBlock = 1024;
inline constexpr uint32_t kMaxBlockX = 1024, kMaxBlockY = 1024, kMaxBlockZ = 64;
inline constexpr uint32_t kMaxGridX = 0x7fffffff, kMaxGridY = 65535, kMaxGridZ = 65535;
inline constexpr size_t kMaxStaticShared = 48 << 10;              // static variables of one kernel
inline constexpr size_t kMaxSharedWithoutOptIn = 48 << 10;        // static + dynamic, unless the kernel opted in
inline constexpr size_t kMaxSharedPerBlock = (164 << 10) - 1024;  // with the opt-in
inline constexpr uint32_t kNamedBarriers = 16;

}  // namespace host_cuda
