#include "tests/host_cuda/engine/barrier.h"

#include <algorithm>
#include <bit>
#include <string_view>

#include "tests/host_cuda/engine/machine.h"
#include "tests/host_cuda/engine/sanitizers.h"

namespace host_cuda {
namespace {

int Reduced(const Barrier& barrier) {
  switch (barrier.operation) {
    case BarrierOp::kAnd:
      return barrier.trues == barrier.threads ? 1 : 0;
    case BarrierOp::kOr:
      return barrier.trues != 0 ? 1 : 0;
    case BarrierOp::kPopc:
      return static_cast<int>(barrier.trues);
    case BarrierOp::kSync:
    case BarrierOp::kArrive:
      break;
  }
  return 0;
}

// By index, as the schedule expects it; a random one shuffles anyway. Mostly they come in this order, or in the
// reverse.
void Sort(Barrier& barrier, Order order) {
  if (order == Order::kRandom) return;
  std::vector<Thread*>& threads = barrier.waiting;
  if (barrier.in_order) {
    if (order == Order::kDescending) std::reverse(threads.begin(), threads.end());
  } else {
    std::sort(threads.begin(), threads.end(), [](const Thread* a, const Thread* b) { return a->linear < b->linear; });
  }
}

// Everybody who waits goes on; the barrier is as new.
void Complete(Machine& machine, Barrier& barrier) {
  Sort(barrier, machine.settings.order);
  if (barrier.operation > BarrierOp::kArrive) {
    const int result = Reduced(barrier);
    for (Thread* thread : barrier.waiting) thread->result = result;
  }
  machine.schedule.ReleaseBlock(barrier.waiting.data(), barrier.waiting.size());
  barrier.Clear();
  ++barrier.rounds;
  machine.open_barriers &= ~(1u << (&barrier - machine.barriers));
}

[[gnu::noinline]] bool SameText(const char* a, const char* b) {
  return std::string_view(a) == std::string_view(b);
}
inline bool SameLine(const Loc& a, const Loc& b) {
  return a.line() == b.line() && (a.file_name() == b.file_name() || SameText(a.file_name(), b.file_name()));
}

// What is asked of a barrier.
struct Request {
  BarrierOp operation;
  uint32_t id, expected;
  bool whole_block;
};

void CheckRequest(const Machine& machine, const Request& request, Loc where) {
  if (request.id >= kNamedBarriers) Fail(where, "barrier %u: there are %u", request.id, kNamedBarriers);
  if (request.expected % kWarpSize != 0 || request.expected > machine.lanes) {
    Fail(where, "barrier %u for %u threads: must be a multiple of %u, and no more than the block has", request.id,
         request.expected, kWarpSize);
  }
  if (request.whole_block && machine.exited != 0 && machine.settings.strict_barriers) {
    Fail(where, "divergent barrier: %u of the block's %u threads exited before it", machine.exited, machine.threads);
  }
}

void Begin(Barrier& barrier, const Request& request, Loc where) {
  barrier.expected = request.expected;
  barrier.whole_block = request.whole_block;
  barrier.operation = request.operation;
  barrier.where = where;
}

[[noreturn, gnu::noinline, gnu::cold]] void FailToMeet(const Machine& machine, const Barrier& barrier, Request request,
                                                       Loc where) {
  const uint32_t id = request.id, line = barrier.where.line();
  const char* const file = barrier.where.file_name();
  if (barrier.passed[machine.running->linear]) {
    Fail(where, "the thread arrives twice at barrier %u before it completes", id);
  }
  if (barrier.expected != request.expected) {
    Fail(where, "barrier %u: waits for %u threads here, for %u at %s:%u", id, request.expected, barrier.expected, file,
         line);
  }
  if (request.whole_block && barrier.whole_block && !SameLine(barrier.where, where)) {
    Fail(where, "divergent barrier: some threads of the block wait here, others at %s:%u", file, line);
  }
  Fail(where, "barrier %u: threads meet in different operations; the others at %s:%u", id, file, line);
}

// Others are there already: do they mean the same?
void CheckMeeting(const Machine& machine, const Barrier& barrier, const Request& request, Loc where) {
  const bool other_line = request.whole_block && barrier.whole_block && !SameLine(barrier.where, where);
  const bool other_operation = barrier.operation != request.operation && barrier.operation != BarrierOp::kArrive &&
                               request.operation != BarrierOp::kArrive;
  const bool twice = barrier.any_passed && barrier.passed[machine.running->linear];
  if (other_line || other_operation || twice || barrier.expected != request.expected) [[unlikely]]
    FailToMeet(machine, barrier, request, where);
}

// A barrier counts warps: the lanes that a last warp lacks come with its last thread.
void Arrive(const Machine& machine, Barrier& barrier, const Thread& self, bool predicate) {
  barrier.arrived += self.linear + 1 == machine.threads ? machine.lanes - self.linear : 1;
  ++barrier.threads;
  barrier.trues += predicate ? 1 : 0;
}

void PassBy(Barrier& barrier, const Thread& self) {
  barrier.any_passed = true;
  barrier.passed[self.linear] = true;
}

void Join(const Machine& machine, Barrier& barrier, Thread& self, const Request& request, Loc where) {
  barrier.operation = request.operation;
  // No branch, as nobody could predict it in the random order.
  const uint32_t turn = machine.settings.order == Order::kDescending ? ~self.linear : self.linear;
  barrier.in_order &= turn >= barrier.last_turn;
  barrier.last_turn = turn;
  barrier.waiting.push_back(&self);
  self.waits = Waits::kBarrier;
  self.waits_in = "a block barrier";
  self.waits_for = request.id;
  self.waits_at = where;
}

}  // namespace

void Barrier::Clear() {
  expected = arrived = threads = trues = last_turn = 0;
  in_order = true;
  waiting.clear();
  if (any_passed) passed.reset();
  any_passed = false;
}

int BlockBarrier(BarrierOp operation, uint32_t id, uint32_t count, bool predicate, Loc where) {
  EngineScope scope;
  Machine& machine = *this_machine;
  Thread& self = *machine.running;
  const Request request{operation, id, count == 0 ? machine.lanes : count, count == 0};
  CheckRequest(machine, request, where);
  Barrier& barrier = machine.barriers[id];
  if (barrier.expected == 0) {
    Begin(barrier, request, where);
    machine.open_barriers |= 1u << id;
  } else {
    CheckMeeting(machine, barrier, request, where);
  }
  Arrive(machine, barrier, self, predicate);
  char* const edge = &barrier.order[barrier.rounds & 1];
  Publish(edge);
  if (operation == BarrierOp::kArrive) {
    PassBy(barrier, self);
  } else {
    Join(machine, barrier, self, request, where);
  }
  const uint32_t gone = request.whole_block ? machine.exited : 0;
  if (barrier.arrived + gone >= barrier.expected) Complete(machine, barrier);
  if (operation == BarrierOp::kArrive) return 0;
  machine.Wait();
  Observe(edge);
  return operation == BarrierOp::kSync ? 0 : self.result;
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
