// What AddressSanitizer and ThreadSanitizer have to be told about memory and fibers that they don't know. All of it is
// empty without them. Under TSan the engine itself is compiled without instrumentation (HOST_CUDA_TSAN says that the
// program has it), so that only the kernels' own accesses count, ordered by nothing but barriers, warp operations and
// fences.
#pragma once

#include <cstddef>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#define HOST_CUDA_ASAN 1
#endif
#if defined(__SANITIZE_THREAD__) && !defined(HOST_CUDA_TSAN)
#define HOST_CUDA_TSAN 1
#endif
#if defined(HOST_CUDA_TSAN)
#include <sanitizer/tsan_interface.h>
extern "C" {
void __tsan_ignore_thread_begin();
void __tsan_ignore_thread_end();
}
#endif

namespace host_cuda {

inline void Poison([[maybe_unused]] const void* p, [[maybe_unused]] size_t bytes) {
#if defined(HOST_CUDA_ASAN)
  __asan_poison_memory_region(p, bytes);
#endif
}

inline void Unpoison([[maybe_unused]] const void* p, [[maybe_unused]] size_t bytes) {
#if defined(HOST_CUDA_ASAN)
  __asan_unpoison_memory_region(p, bytes);
#endif
}

// A happens-before edge: what came before Publish(p) is seen after Observe(p).
inline void Publish([[maybe_unused]] void* p) {
#if defined(HOST_CUDA_TSAN)
  __tsan_release(p);
#endif
}

inline void Observe([[maybe_unused]] void* p) {
#if defined(HOST_CUDA_TSAN)
  __tsan_acquire(p);
#endif
}

// TSan looks away in its lifetime: inline functions of the standard library may be linked in their instrumented
// version.
class EngineScope {
 public:
#if defined(HOST_CUDA_TSAN)
  EngineScope() {
    __tsan_ignore_thread_begin();
  }
  ~EngineScope() {
    __tsan_ignore_thread_end();
  }
#else
  EngineScope() {}
#endif
  EngineScope(const EngineScope&) = delete;
  EngineScope& operator=(const EngineScope&) = delete;
};

}  // namespace host_cuda
