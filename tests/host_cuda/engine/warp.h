// What the lanes of a warp do together. The lanes of a mask need not be in lockstep: each waits in the operation for
// the others.
//
// Reported: a lane that is not in the mask it names; lanes that meet in different operations, masks or lines; a shuffle
// that reads a lane outside the mask, or one that has exited. Exited lanes don't count as named, as the rules say.
#pragma once

#include <cstdint>

#include "tests/host_cuda/engine/diagnose.h"

namespace host_cuda {

struct Meeting;

// Waits for the lanes of `mask`. The last one to come calls finish(), if any, with every lane's slot: all results are
// there before any lane goes on. `operation` is a literal: what lanes that meet must agree on.
void Meet(uint32_t mask, const char* operation, void* slot, void (*finish)(Meeting& meeting), Loc where);

void SyncWarp(uint32_t mask, Loc where = Loc::current());

enum class ShuffleMode : uint32_t { kUp, kDown, kButterfly, kIndex };
// b, c: as in PTX: lane or distance; segment mask << 8 | clamp.
uint32_t Shuffle(ShuffleMode mode, uint32_t value, uint32_t b, uint32_t c, uint32_t mask, bool* in_range = nullptr,
                 Loc where = Loc::current());

uint32_t Ballot(bool predicate, uint32_t mask, Loc where = Loc::current());
bool VoteAll(bool predicate, uint32_t mask, Loc where = Loc::current());
bool VoteAny(bool predicate, uint32_t mask, Loc where = Loc::current());
bool VoteUniform(bool predicate, uint32_t mask, Loc where = Loc::current());

// The lanes that hold the same value.
uint32_t MatchAny(uint64_t value, uint32_t mask, Loc where = Loc::current());
// The mask if all hold the same, otherwise 0.
uint32_t MatchAll(uint64_t value, uint32_t mask, bool* same = nullptr, Loc where = Loc::current());

enum class Reduction : uint32_t { kAdd, kMin, kMax, kMinSigned, kMaxSigned, kAnd, kOr, kXor };
uint32_t Reduce(Reduction reduction, uint32_t value, uint32_t mask, Loc where = Loc::current());

// Only the calling lane: which others run with it is nothing a kernel may rely on.
uint32_t ActiveMask();

}  // namespace host_cuda
