#include "tests/host_cuda/ptx/mbarrier.h"

namespace host_cuda::ptx {

BarrierState CheckedState(u64 word, Loc where) {
  if (!BarrierState::Valid(word)) Fail(where, "the mbarrier was not initialised");
  return BarrierState::From(word);
}

BarrierState Arrived(BarrierState state, u32 count, Arrival arrival, bool may_complete, Loc where) {
  if (count == 0 || count > state.pending) {
    Fail(where, "%u arrivals at an mbarrier that waits for %u", count, state.pending);
  }
  state.pending -= count;
  if (arrival == Arrival::kDrop) state.expected -= count;
  if (state.pending != 0) return state;
  if (!may_complete) Fail(where, "the last arrival at an mbarrier is one that must not be (noComplete)");
  state.pending = state.expected;
  ++state.phase;
  return state;
}

bool PhaseEnded(BarrierState now, BarrierState before, Loc where) {
  const auto phases = static_cast<u16>(now.phase - before.phase);
  if (phases > 1) Fail(where, "an mbarrier's wait for a phase that ended %u phases ago", phases);
  return phases == 1;
}

}  // namespace host_cuda::ptx
