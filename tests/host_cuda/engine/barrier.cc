#include "tests/host_cuda/engine/barrier.h"

#include <algorithm>
#include <bit>
#include <string_view>

#include "tests/host_cuda/engine/machine.h"
#include "tests/host_cuda/engine/sanitizers.h"

namespace host_cuda {
namespace {

uint32_t RoundToWarps(uint32_t threads) {
  return (threads + kWarpSize - 1) / kWarpSize * kWarpSize;
}

// Barriers count warps: the lanes that a last warp lacks come with its last thread.
uint32_t Weight(const Machine& machine, const Thread& thread) {
  return thread.linear + 1 == machine.threads ? RoundToWarps(machine.threads) - machine.threads + 1 : 1;
}

int Reduced(const Barrier& barrier) {
  switch (static_cast<BarrierOp>(barrier.reduction)) {
    case BarrierOp::kAnd:
      return barrier.all;
    case BarrierOp::kOr:
      return barrier.any;
    case BarrierOp::kPopc:
      return barrier.count;
    case BarrierOp::kSync:
    case BarrierOp::kArrive:
      break;
  }
  return 0;
}

// By index, as the schedule expects it; a random one shuffles anyway. Mostly they come in this order, or in the
// reverse.
void Sort(std::vector<Thread*>& threads, Order order) {
  if (order == Order::kRandom) return;
  const auto before = [](const Thread* a, const Thread* b) { return a->linear < b->linear; };
  if (order == Order::kDescending) std::reverse(threads.begin(), threads.end());
  if (!std::is_sorted(threads.begin(), threads.end(), before)) std::sort(threads.begin(), threads.end(), before);
}

// Everybody who waits goes on; the barrier is as new.
void Complete(Machine& machine, Barrier& barrier) {
  Sort(barrier.waiting, machine.settings.order);
  const int result = Reduced(barrier);
  for (Thread* thread : barrier.waiting) {
    thread->waits = Waits::kNo;
    thread->result = result;
  }
  machine.schedule.ReleaseBlock(barrier.waiting.data(), barrier.waiting.size());
  barrier.waiting.clear();
  barrier.who.reset();
  barrier.expected = barrier.arrived = 0;
  ++barrier.rounds;
  machine.open_barriers &= ~(1u << (&barrier - machine.barriers));
}

bool SameLine(const Loc& a, const Loc& b) {
  return a.line() == b.line() &&
         (a.file_name() == b.file_name() || std::string_view(a.file_name()) == std::string_view(b.file_name()));
}

void Begin(Barrier& barrier, BarrierOp operation, uint32_t expected, bool whole_block, const Loc& where) {
  barrier.expected = expected;
  barrier.whole_block = whole_block;
  barrier.reduction = static_cast<int>(operation);
  barrier.all = 1;
  barrier.any = barrier.count = 0;
  barrier.where = where;
}

void Check(Machine& machine, const Barrier& barrier, BarrierOp operation, uint32_t id, uint32_t expected,
           bool whole_block, const Loc& where) {
  const Thread& self = *machine.running;
  if (barrier.who.test(self.linear)) Fail(where, "the thread arrives twice at barrier %u before it completes", id);
  if (barrier.expected != expected) {
    Fail(where, "barrier %u: waits for %u threads here, for %u at %s:%u", id, expected, barrier.expected,
         barrier.where.file_name(), barrier.where.line());
  }
  if (whole_block && barrier.whole_block && !SameLine(barrier.where, where)) {
    Fail(where, "divergent barrier: some threads of the block wait here, others at %s:%u", barrier.where.file_name(),
         barrier.where.line());
  }
  if (operation != BarrierOp::kArrive && barrier.reduction != static_cast<int>(operation) &&
      barrier.reduction != static_cast<int>(BarrierOp::kArrive)) {
    Fail(where, "barrier %u: threads meet in different operations; the others at %s:%u", id, barrier.where.file_name(),
         barrier.where.line());
  }
}

}  // namespace

int BlockBarrier(BarrierOp operation, uint32_t id, uint32_t count, bool predicate, Loc where) {
  EngineScope scope;
  Machine& machine = *this_machine;
  Thread& self = *machine.running;
  if (id >= kNamedBarriers) Fail(where, "barrier %u: there are %u", id, kNamedBarriers);
  if (count % kWarpSize != 0 || count > RoundToWarps(machine.threads)) {
    Fail(where, "barrier %u for %u threads: must be a multiple of %u, and no more than the block has", id, count,
         kWarpSize);
  }
  const bool whole_block = count == 0;
  uint32_t expected = whole_block ? RoundToWarps(machine.threads) : count;
  if (whole_block && machine.exited != 0 && machine.settings.strict_barriers) {
    Fail(where, "divergent barrier: %u of the block's %u threads exited before it", machine.exited, machine.threads);
  }
  Barrier& barrier = machine.barriers[id];
  if (barrier.expected == 0) {
    Begin(barrier, operation, expected, whole_block, where);
    machine.open_barriers |= 1u << id;
  } else {
    Check(machine, barrier, operation, id, expected, whole_block, where);
    if (operation != BarrierOp::kArrive) barrier.reduction = static_cast<int>(operation);
  }
  barrier.who.set(self.linear);
  barrier.arrived += Weight(machine, self);
  barrier.all &= predicate ? 1 : 0;
  barrier.any |= predicate ? 1 : 0;
  barrier.count += predicate ? 1 : 0;
  char* const edge = &barrier.order[barrier.rounds & 1];
  Publish(edge);
  if (operation != BarrierOp::kArrive) {
    self.waits = Waits::kBarrier;
    self.waits_in = "a block barrier";
    self.waits_for = id;
    self.waits_at = where;
    barrier.waiting.push_back(&self);
  }
  const uint32_t gone = whole_block ? machine.exited : 0;
  if (barrier.arrived + gone >= barrier.expected) Complete(machine, barrier);
  if (operation == BarrierOp::kArrive) return 0;
  machine.Wait();
  Observe(edge);
  return self.result;
}

void LeaveBarriers(Thread& thread) {
  Machine& machine = *this_machine;
  for (uint32_t open = machine.open_barriers; open != 0; open &= open - 1) {
    Barrier& barrier = machine.barriers[std::countr_zero(open)];
    if (!barrier.whole_block) continue;
    if (machine.settings.strict_barriers) {
      Fail(barrier.where, "divergent barrier: thread %u exits while others of its block wait here", thread.linear);
    }
    if (barrier.arrived + machine.exited >= barrier.expected) Complete(machine, barrier);
  }
}

}  // namespace host_cuda
