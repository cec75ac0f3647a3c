// mbarrier: an object of 64 bits in shared memory that counts arrivals, phase after phase, and that copies can arrive
// at.
//
// A wait makes copies arrive that it still needs, and not before. Reported: an object that was not initialised, or
// twice; counts out of range; more arrivals than are pending; a wait for a phase that ended before the last.
#pragma once

#include "tests/host_cuda/ptx/async.h"

namespace host_cuda::ptx {

// What the object holds, and what an arrival returns: the state before it.
struct BarrierState {
  u32 pending = 0, expected = 0;  // arrivals of this phase
  u16 phase = 0;

  static constexpr u32 kMost = (1 << 20) - 1;
  static constexpr u64 kMagic = 0x6b;  // fresh memory has 0xff there

  static bool Valid(u64 word) { return word >> 56 == kMagic; }
  static BarrierState From(u64 word) {
    return {static_cast<u32>(word) & kMost, static_cast<u32>(word >> 20) & kMost, static_cast<u16>(word >> 40)};
  }
  u64 Word() const { return pending | u64{expected} << 20 | u64{phase} << 40 | kMagic << 56; }
};

enum class Arrival { kStay, kDrop };

// The state after `count` arrivals, the last of which ends the phase.
BarrierState Arrived(BarrierState state, u32 count, Arrival arrival, bool may_complete, Loc where);
// The object's state, or a report.
BarrierState CheckedState(u64 word, Loc where);
bool PhaseEnded(BarrierState now, BarrierState before, Loc where);

HOST_CUDA_CALLED u64* BarrierAt(SharedWindow window, u64 address, Loc where) {
  CheckAddress<Space::kShared>(window, address, sizeof(u64), where);
  return reinterpret_cast<u64*>(address);
}

// A plain write: TSan sees who uses the object without having waited for it.
HOST_CUDA_CALLED void InitBarrier(SharedWindow window, u64 address, u32 count, Loc where = Loc::current()) {
  u64* const word = BarrierAt(window, address, where);
  if (count == 0 || count > BarrierState::kMost) Fail(where, "mbarrier.init with a count of %u", count);
  if (BarrierState::Valid(*word)) Fail(where, "mbarrier.init of one that is in use");
  *word = BarrierState{count, count, 0}.Word();
}
HOST_CUDA_CALLED void InvalidateBarrier(SharedWindow window, u64 address, Loc where = Loc::current()) {
  u64* const word = BarrierAt(window, address, where);
  CheckedState(*word, where);
  *word = ~u64{0};
}

HOST_CUDA_CALLED u64 ArriveAtBarrier(SharedWindow window, u64 address, u32 count, Arrival arrival, bool may_complete,
                                     Loc where = Loc::current()) {
  u64* const word = BarrierAt(window, address, where);
  const u64 before = __atomic_load_n(word, __ATOMIC_RELAXED);
  const BarrierState state = CheckedState(before, where);
  BeforeStore(reinterpret_cast<char*>(word) + state.phase % 2, Ordering::kRelease);
  __atomic_store_n(word, Arrived(state, count, arrival, may_complete, where).Word(), __ATOMIC_RELAXED);
  return before;
}

// cp.async.mbarrier.arrive: the arrival is due when the thread's copies so far have arrived. It is one more than were
// expected in this phase, unless `counted`.
HOST_CUDA_CALLED void ArriveAfterCopies(SharedWindow window, u64 address, bool counted, Loc where = Loc::current()) {
  u64* const word = BarrierAt(window, address, where);
  BarrierState state = CheckedState(__atomic_load_n(word, __ATOMIC_RELAXED), where);
  if (!counted) ++state.pending;
  __atomic_store_n(word, state.Word(), __ATOMIC_RELAXED);
  DeferArrival(word);
}

// ended(state): the phase that is waited for has ended.
template <class Ended>
HOST_CUDA_CALLED bool Test(SharedWindow window, u64 address, Ended ended, Loc where) {
  u64* const word = BarrierAt(window, address, where);
  std::vector<AsyncCopy> copies;
  for (;;) {
    const BarrierState state = CheckedState(__atomic_load_n(word, __ATOMIC_RELAXED), where);
    const bool done = ended(state);
    if (!done && TakeDeferred(word, &copies)) {
      Arrive(copies);
      ArriveAtBarrier(window, address, 1, Arrival::kStay, true, where);
      continue;
    }
    if (done) {
      AfterLoad(reinterpret_cast<char*>(word) + (state.phase + 1) % 2, Ordering::kAcquire, where);
    } else {
      this_machine->Yield(where);
    }
    return done;
  }
}
HOST_CUDA_CALLED bool TestWait(SharedWindow window, u64 address, u64 before, Loc where = Loc::current()) {
  const BarrierState state = CheckedState(before, where);
  return Test(
      window, address, [&](BarrierState now) { return PhaseEnded(now, state, where); }, where);
}
HOST_CUDA_CALLED bool TestParity(SharedWindow window, u64 address, u32 parity, Loc where = Loc::current()) {
  return Test(
      window, address, [=](BarrierState now) { return (now.phase & 1) != (parity & 1); }, where);
}

HOST_CUDA_CALLED u32 PendingCount(u64 before, Loc where = Loc::current()) {
  return CheckedState(before, where).pending;
}

}  // namespace host_cuda::ptx
