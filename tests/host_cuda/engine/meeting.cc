#include <bit>
#include <string_view>

#include "tests/host_cuda/engine/machine.h"
#include "tests/host_cuda/engine/sanitizers.h"
#include "tests/host_cuda/engine/warp.h"

namespace host_cuda {
namespace {

void Complete(Machine& machine, Warp& warp, Meeting& meeting, const Thread* last) {
  if (meeting.finish != nullptr) meeting.finish(meeting);
  warp.open &= ~(1u << (&meeting - warp.meeting));
  ++meeting.rounds;
  Thread* others[kWarpSize];
  size_t n = 0;
  for (uint32_t lanes = meeting.lanes; lanes != 0; lanes &= lanes - 1) {
    Thread* thread = machine.pool[warp.index * kWarpSize + std::countr_zero(lanes)].get();
    if (thread != last) others[n++] = thread;
  }
  machine.schedule.ReleaseWarp(others, n);
}

void Begin(Meeting& meeting, uint32_t mask, uint32_t lanes, const char* operation, void (*finish)(Meeting&),
           Loc where) {
  meeting.mask = mask;
  meeting.lanes = lanes;
  meeting.arrived = 0;
  meeting.operation = operation;
  meeting.finish = finish;
  meeting.where = where;
}

[[noreturn]] void Differ(const Meeting& meeting, uint32_t mask, const char* operation, Loc where) {
  Fail(where, "lanes of one warp meet in different operations: %s with mask %08x here, %s with mask %08x at %s:%u",
       operation, mask, meeting.operation, meeting.mask, meeting.where.file_name(), meeting.where.line());
}

// The open meeting of this mask, or a new one. Lanes that wait for each other with different masks would wait forever.
Meeting& Find(Warp& warp, uint32_t lane, uint32_t mask, const char* operation, Loc where, bool* fresh) {
  for (uint32_t open = warp.open; open != 0; open &= open - 1) {
    Meeting& meeting = warp.meeting[std::countr_zero(open)];
    if (meeting.mask == mask) {
      *fresh = false;
      return meeting;
    }
    if ((meeting.mask >> lane & 1) != 0 && (meeting.arrived & mask) != 0) Differ(meeting, mask, operation, where);
  }
  *fresh = true;
  const int unused = std::countr_one(warp.open);
  warp.open |= 1u << unused;
  return warp.meeting[unused];
}

void Check(const Meeting& meeting, uint32_t mask, const char* operation, bool any_line, Loc where) {
  const bool same_operation =
      meeting.operation == operation || std::string_view(meeting.operation) == std::string_view(operation);
  if (!same_operation || (!any_line && meeting.where.line() != where.line())) Differ(meeting, mask, operation, where);
}

}  // namespace

void Meet(uint32_t mask, const char* operation, void* slot, void (*finish)(Meeting& meeting), Loc where) {
  EngineScope scope;
  Machine& machine = *this_machine;
  Thread& self = *machine.running;
  Warp& warp = *self.warp;
  if ((mask >> self.lane & 1) == 0) {
    Fail(where, "%s: lane %u calls it with mask %08x, which does not name the lane", operation, self.lane, mask);
  }
  bool fresh = false;
  Meeting& meeting = Find(warp, self.lane, mask, operation, where, &fresh);
  if (fresh) {
    Begin(meeting, mask, mask & warp.alive, operation, finish, where);
  } else {
    Check(meeting, mask, operation, finish == nullptr, where);
  }
  meeting.slot[self.lane] = slot;
  meeting.arrived |= 1u << self.lane;
  char* const edge = &meeting.order[meeting.rounds & 1];
  Publish(edge);
  if (meeting.arrived == meeting.lanes) {
    Complete(machine, warp, meeting, &self);
    if (machine.schedule.LastLaneSteps()) {
      machine.schedule.Back(&self);
      machine.Wait();
    }
  } else {
    self.waits = Waits::kWarp;
    self.waits_in = operation;
    self.waits_for = mask;
    self.waits_at = where;
    machine.Wait();
  }
  Observe(edge);
}

void LeaveWarp(Thread& thread) {
  Machine& machine = *this_machine;
  Warp& warp = *thread.warp;
  warp.alive &= ~(1u << thread.lane);
  for (uint32_t open = warp.open; open != 0; open &= open - 1) {
    Meeting& meeting = warp.meeting[std::countr_zero(open)];
    meeting.lanes &= warp.alive;
    if (meeting.arrived == meeting.lanes) Complete(machine, warp, meeting, nullptr);
  }
}

}  // namespace host_cuda
