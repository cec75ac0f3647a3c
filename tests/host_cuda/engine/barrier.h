// The block's barriers: bar and barrier, sync, arrive and red, by number and count.
//
// Reported: a thread that exited while others wait for the whole block, or that exited before one comes to it (strict);
// threads that wait for the whole block in different lines; different counts at one barrier; a count that is no
// multiple of the warp size; a thread that arrives twice.
#pragma once

#include <cstdint>

#include "tests/host_cuda/engine/diagnose.h"

namespace host_cuda {

enum class BarrierOp { kSync, kArrive, kAnd, kOr, kPopc };

// count 0: the whole block. What a reduction gives, otherwise 0.
int BlockBarrier(BarrierOp operation, uint32_t id, uint32_t count, bool predicate, Loc where = Loc::current());

}  // namespace host_cuda
