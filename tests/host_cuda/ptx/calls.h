// What device code calls that no .cu defines, and the small instructions that end or describe a thread.
#pragma once

#include "tests/host_cuda/engine/machine.h"
#include "tests/host_cuda/ptx/types.h"

namespace host_cuda::ptx {

// printf: the arguments lie in a buffer, each aligned to its size. To stdout at once.
s32 VPrintf(const char* format, const unsigned char* arguments);
[[noreturn]] void AssertFail(const char* message, const char* file, u32 line, const char* function);
[[noreturn]] void Trap(const char* what, Loc where = Loc::current());
void NanoSleep(Loc where = Loc::current());

// 1 ns a call: times differ, and nothing else is promised.
u64 Clock();

inline const Dim3& ThreadIndex() {
  return Self().index;
}
inline const Dim3& BlockIndex() {
  return this_machine->block;
}
inline const Dim3& BlockSize() {
  return this_machine->launch.block;
}
inline const Dim3& GridSize() {
  return this_machine->launch.grid;
}
inline u32 LaneId() {
  return Self().lane;
}
inline u32 WarpId() {
  return Self().linear / kWarpSize;
}
inline u32 WarpCount() {
  return (this_machine->threads + kWarpSize - 1) / kWarpSize;
}
inline u64 GridId() {
  return this_machine->grids;
}
inline u32 DynamicSharedBytes() {
  return static_cast<u32>(this_machine->launch.dynamic_shared_bytes);
}
inline u32 TotalSharedBytes() {
  return static_cast<u32>(this_machine->kernel->static_shared_bytes + this_machine->launch.dynamic_shared_bytes);
}
inline u64 SharedBase() {
  return this_machine->shared.base();
}
inline u64 DynamicShared() {
  return this_machine->shared.dynamic();
}

}  // namespace host_cuda::ptx
