// A stack of its own and a hand-written switch (x86-64, System V): what one CUDA thread runs on. No allocation, no
// system call in a switch; rounding modes are not saved, as nothing leaves them changed across a switch.
#pragma once

#include <cstddef>

namespace host_cuda {

struct Fiber {
  void* sp = nullptr;
  char* stack = nullptr;  // lowest address; a guard page lies below it
  size_t bytes = 0;
  void* asan_stack = nullptr;
  void* tsan = nullptr;
  bool abandoned = false;  // left in the middle: its frames are dead
};

// A fiber with a stack of its own.
void CreateFiber(Fiber& fiber);
void DestroyFiber(Fiber& fiber);

// The one that runs now, on the thread's own stack.
void AdoptThread(Fiber& fiber);

// The next switch to it calls entry(), which must never return.
void ArmFiber(Fiber& fiber, void (*entry)());

// Returns when something switches back to `from`.
void SwitchFiber(Fiber& from, Fiber& to);

// For the end of a fiber, or a failure in its middle: `from` runs again only when it is armed anew.
[[noreturn]] void LeaveFiber(Fiber& from, Fiber& to);

// The first thing entry() does.
void EnterFiber();

}  // namespace host_cuda
