// Where all lanes of a warp meet, for the instructions that need each of them.
#pragma once

#include "tests/host_cuda/engine/machine.h"
#include "tests/host_cuda/engine/warp.h"

namespace host_cuda::ptx {

inline constexpr uint32_t kFullWarp = ~0u;

inline void MeetFullWarp(const char* operation, void* slot, void (*finish)(Meeting& meeting), Loc where) {
  const uint32_t alive = Self().warp->alive;
  if (alive != kFullWarp) Fail(where, "%s needs all lanes of the warp; those of mask %08x are there", operation, alive);
  Meet(kFullWarp, operation, slot, finish, where);
}

}  // namespace host_cuda::ptx
