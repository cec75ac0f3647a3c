#include "tests/host_cuda/engine/machine.h"

#include "tests/host_cuda/engine/sanitizers.h"

namespace host_cuda {
namespace {

// A block in which nobody did anything but read flags for so long won't end.
constexpr uint64_t kMaxIdleTurns = 20'000'000;
constexpr int kShown = 8;

}  // namespace

constinit thread_local Machine* this_machine = nullptr;

Machine::~Machine() {
  for (auto& thread : pool) DestroyFiber(thread->fiber);
}

void Machine::FailNobodyReady() {
  Fail(running->waits_at, "deadlock: every thread of the block that has not exited waits");
}

void Machine::Yield(Loc where) {
  if (++idle_turns > kMaxIdleTurns) Fail(where, "the block spins on memory that nobody changes");
  schedule.Back(running);
  Wait();
}

void Machine::Stop() {
  for (uint32_t i = 0; i < threads; ++i) {
    pool[i]->fiber.abandoned = true;
    if (!pool[i]->exited) PublishFor(pool[i]->fiber, &order);  // what it did is over when the grid is
  }
  Thread* const self = running;
  running = nullptr;
  LeaveFiber(self->fiber, main);
}

std::string Machine::Waiters() const {
  std::string text;
  int shown = 0;
  for (uint32_t i = 0; i < threads; ++i) {
    const Thread& thread = *pool[i];
    if (thread.exited || thread.waits == Waits::kNo || schedule.Ready(&thread)) continue;
    if (++shown > kShown) return text + "\n  ... and more";
    text += Format("\n  thread %u waits in %s %s%x at %s:%u", i, thread.waits_in,
                   thread.waits == Waits::kWarp ? "with mask " : "number ", thread.waits_for,
                   thread.waits_at.file_name(), thread.waits_at.line());
  }
  return text;
}

}  // namespace host_cuda
