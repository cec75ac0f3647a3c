// A stack of its own: what one CUDA thread runs on. No allocation, no system call in a switch.
#pragma once

#include <cstddef>

#include "tests/host_cuda/engine/sanitizers.h"
#include "tests/host_cuda/engine/stack_switch.h"

namespace host_cuda {

struct Fiber {
  Place place;
  int scopes = 0;          // EngineScopes it is in
  bool abandoned = false;  // left in the middle: its frames are dead
  char* stack = nullptr;   // lowest address; a guard page lies below it
  size_t bytes = 0;
  void* asan_stack = nullptr;
  void* tsan = nullptr;
};

// A fiber with a stack of its own.
void CreateFiber(Fiber& fiber);
void DestroyFiber(Fiber& fiber);

// The one that runs now, on the thread's own stack.
void AdoptThread(Fiber& fiber);

// The next switch to it calls entry(), which must never return.
void ArmFiber(Fiber& fiber, void (*entry)());

#if defined(HOST_CUDA_ASAN) || defined(HOST_CUDA_TSAN)
// What they have to be told before and after a switch. `from` null: it is left for good.
void LeaveForSanitizers(Fiber* from, Fiber& to);
void EnterForSanitizers(Fiber& fiber);
#else
inline void LeaveForSanitizers(Fiber*, Fiber&) {}
inline void EnterForSanitizers(Fiber&) {}
#endif

// Returns when something switches back to `from`.
inline void SwitchFiber(Fiber& from, Fiber& to) {
  LeaveForSanitizers(&from, to);
  SwitchStacks(&from.place, &to.place);
  EnterForSanitizers(from);
}

// For the end of a fiber, or a failure in its middle: `from` runs again only when it is armed anew.
[[noreturn]] void LeaveFiber(Fiber& from, Fiber& to);

// TSan: Publish(p) in another fiber's name.
void PublishFor(Fiber& fiber, void* p);

// The first thing entry() does.
void EnterFiber();

}  // namespace host_cuda
