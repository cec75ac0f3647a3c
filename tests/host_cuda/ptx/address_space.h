// What kind of memory a generic address points to: isspacep.
#pragma once

#include "tests/host_cuda/ptx/memory.h"

namespace host_cuda::ptx {

enum class AddressSpace { kGlobal, kShared, kLocal, kConst, kParam };

AddressSpace SpaceOf(SharedWindow window, u64 address);

}  // namespace host_cuda::ptx
