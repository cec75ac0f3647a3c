#include "tests/host_cuda/engine/fiber.h"

#include <pthread.h>
#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>

#include "tests/host_cuda/engine/sanitizers.h"

// void host_cuda_switch(void** save, void* to): callee-saved registers on the old stack, then off the new one.
asm(R"(
.text
.globl host_cuda_switch
.hidden host_cuda_switch
.type host_cuda_switch,@function
host_cuda_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size host_cuda_switch,.-host_cuda_switch
)");
extern "C" void host_cuda_switch(void** save, void* to);

namespace host_cuda {
namespace {

constexpr size_t kGuard = 4096;
#if defined(HOST_CUDA_ASAN) || defined(HOST_CUDA_TSAN)
constexpr size_t kStack = 256 << 10;
#else
constexpr size_t kStack = 64 << 10;
#endif

}  // namespace

void CreateFiber(Fiber& fiber) {
  void* memory =
      mmap(nullptr, kGuard + kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED || mprotect(memory, kGuard, PROT_NONE) != 0) {
    std::perror("host_cuda: stack of a fiber");
    std::abort();
  }
  fiber.stack = static_cast<char*>(memory) + kGuard;
  fiber.bytes = kStack;
#if defined(HOST_CUDA_TSAN)
  fiber.tsan = __tsan_create_fiber(0);
#endif
}

void DestroyFiber(Fiber& fiber) {
  if (fiber.stack == nullptr) return;
#if defined(HOST_CUDA_TSAN)
  __tsan_destroy_fiber(fiber.tsan);
#endif
  Unpoison(fiber.stack, fiber.bytes);
  munmap(fiber.stack - kGuard, kGuard + fiber.bytes);
  fiber = Fiber();
}

void AdoptThread(Fiber& fiber) {
#if defined(HOST_CUDA_TSAN)
  fiber.tsan = __tsan_get_current_fiber();
#endif
#if defined(HOST_CUDA_ASAN)
  pthread_attr_t attributes;
  void* stack = nullptr;
  if (pthread_getattr_np(pthread_self(), &attributes) == 0) {
    pthread_attr_getstack(&attributes, &stack, &fiber.bytes);
    pthread_attr_destroy(&attributes);
  }
  fiber.stack = static_cast<char*>(stack);
#else
  (void)fiber;
#endif
}

void ArmFiber(Fiber& fiber, void (*entry)()) {
  if (fiber.abandoned) {
    Unpoison(fiber.stack, fiber.bytes);
#if defined(HOST_CUDA_TSAN)
    __tsan_destroy_fiber(fiber.tsan);
    fiber.tsan = __tsan_create_fiber(0);
#endif
    fiber.abandoned = false;
  }
  void** top = reinterpret_cast<void**>(fiber.stack + fiber.bytes);
  *--top = nullptr;  // where entry() would return to; keeps the stack aligned as after a call
  *--top = reinterpret_cast<void*>(entry);
  for (int saved = 0; saved < 6; ++saved) *--top = nullptr;
  fiber.sp = top;
  fiber.asan_stack = nullptr;
}

void SwitchFiber(Fiber& from, Fiber& to) {
#if defined(HOST_CUDA_ASAN)
  __sanitizer_start_switch_fiber(&from.asan_stack, to.stack, to.bytes);
#endif
#if defined(HOST_CUDA_TSAN)
  __tsan_switch_to_fiber(to.tsan, __tsan_switch_to_fiber_no_sync);
#endif
  host_cuda_switch(&from.sp, to.sp);
#if defined(HOST_CUDA_ASAN)
  __sanitizer_finish_switch_fiber(from.asan_stack, nullptr, nullptr);
#endif
}

void LeaveFiber(Fiber& from, Fiber& to) {
#if defined(HOST_CUDA_ASAN)
  __asan_handle_no_return();
  __sanitizer_start_switch_fiber(nullptr, to.stack, to.bytes);
#endif
#if defined(HOST_CUDA_TSAN)
  __tsan_switch_to_fiber(to.tsan, __tsan_switch_to_fiber_no_sync);
#endif
  host_cuda_switch(&from.sp, to.sp);
  std::abort();  // armed anew, it starts at its entry
}

void EnterFiber() {
#if defined(HOST_CUDA_ASAN)
  __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
#endif
}

}  // namespace host_cuda
