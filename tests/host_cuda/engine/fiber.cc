#include "tests/host_cuda/engine/fiber.h"

#include <pthread.h>
#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>

namespace host_cuda {
namespace {

constexpr size_t kGuard = 4096;
constexpr size_t kLinesOfATop = 5;  // odd, so that the colours are all different; about what a waiting thread uses
#if defined(HOST_CUDA_ASAN) || defined(HOST_CUDA_TSAN)
constexpr size_t kStack = 512 << 10;  // translated kernels are not optimised there
#else
constexpr size_t kStack = 64 << 10;
#endif

// What a stack's top leaves unused. Without it all tops would lie a multiple of 4096 apart, in the same few sets of the
// first cache, and every switch would miss it.
size_t Colour() {
  constexpr size_t kLine = 64, kSets = 64;
  thread_local size_t fibers = 0;
  return fibers++ * kLinesOfATop % kSets * kLine;
}

#if defined(HOST_CUDA_TSAN)
thread_local int scopes_outside = 0;

void SwitchTsan(Fiber& to) {
  __tsan_switch_to_fiber(to.tsan, __tsan_switch_to_fiber_no_sync);
  engine_scopes = &to.scopes;
}

void DestroyTsan(Fiber& fiber) {
  void* const self = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(fiber.tsan, __tsan_switch_to_fiber_no_sync);
  for (; fiber.scopes > 0; --fiber.scopes) __tsan_ignore_thread_end();
  __tsan_switch_to_fiber(self, __tsan_switch_to_fiber_no_sync);
  __tsan_destroy_fiber(fiber.tsan);
}
#endif

}  // namespace

#if defined(HOST_CUDA_TSAN)
thread_local int* engine_scopes = &scopes_outside;
#endif

void CreateFiber(Fiber& fiber) {
  void* memory =
      mmap(nullptr, kGuard + kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED || mprotect(memory, kGuard, PROT_NONE) != 0) {
    std::perror("host_cuda: stack of a fiber");
    std::abort();
  }
  fiber.stack = static_cast<char*>(memory) + kGuard;
  fiber.bytes = kStack - Colour();
#if defined(HOST_CUDA_TSAN)
  fiber.tsan = __tsan_create_fiber(0);
#endif
}

void DestroyFiber(Fiber& fiber) {
  if (fiber.stack == nullptr) return;
#if defined(HOST_CUDA_TSAN)
  DestroyTsan(fiber);
#endif
  Unpoison(fiber.stack, fiber.bytes);
  munmap(fiber.stack - kGuard, kGuard + kStack);
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
    DestroyTsan(fiber);
    fiber.tsan = __tsan_create_fiber(0);
#endif
    fiber.abandoned = false;
  }
  fiber.place = FreshPlace(fiber.stack + fiber.bytes, entry);
  fiber.asan_stack = nullptr;
}

#if defined(HOST_CUDA_ASAN) || defined(HOST_CUDA_TSAN)
void LeaveForSanitizers([[maybe_unused]] Fiber* from, Fiber& to) {
#if defined(HOST_CUDA_ASAN)
  if (from == nullptr) __asan_handle_no_return();
  __sanitizer_start_switch_fiber(from == nullptr ? nullptr : &from->asan_stack, to.stack, to.bytes);
#endif
#if defined(HOST_CUDA_TSAN)
  SwitchTsan(to);
#endif
}

void EnterForSanitizers([[maybe_unused]] Fiber& fiber) {
#if defined(HOST_CUDA_ASAN)
  __sanitizer_finish_switch_fiber(fiber.asan_stack, nullptr, nullptr);
#endif
}
#endif

void LeaveFiber(Fiber& from, Fiber& to) {
  LeaveForSanitizers(nullptr, to);
  SwitchStacks(&from.place, &to.place);
  std::abort();  // armed anew, it starts at its entry
}

void PublishFor([[maybe_unused]] Fiber& fiber, [[maybe_unused]] void* p) {
#if defined(HOST_CUDA_TSAN)
  void* const self = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(fiber.tsan, __tsan_switch_to_fiber_no_sync);
  Publish(p);
  __tsan_switch_to_fiber(self, __tsan_switch_to_fiber_no_sync);
#endif
}

void EnterFiber() {
#if defined(HOST_CUDA_ASAN)
  __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
#endif
}

}  // namespace host_cuda
