#include "tests/host_cuda/engine/memory_order.h"

#include "tests/host_cuda/engine/machine.h"
#include "tests/host_cuda/engine/sanitizers.h"

namespace host_cuda {
namespace {

constexpr uint32_t kPatience = 8;  // reads of one thread between two turns for the others
[[maybe_unused]] constexpr size_t kRemembered = 16;

}  // namespace

void BeforeStore([[maybe_unused]] void* address, [[maybe_unused]] Ordering ordering) {
#if defined(HOST_CUDA_TSAN)
  const bool releases = ordering == Ordering::kRelease || ordering == Ordering::kAcquireRelease;
  if (releases || Self().fenced) Publish(address);
#endif
}

void AfterLoad([[maybe_unused]] void* address, [[maybe_unused]] Ordering ordering, Loc where) {
  EngineScope scope;
  Thread& self = Self();
#if defined(HOST_CUDA_TSAN)
  if (ordering == Ordering::kAcquire || ordering == Ordering::kAcquireRelease) {
    Observe(address);
  } else {
    if (self.unfenced_reads.size() == kRemembered) self.unfenced_reads.erase(self.unfenced_reads.begin());
    self.unfenced_reads.push_back(address);
  }
#endif
  if (++self.spins % kPatience == 0) this_machine->Yield(where);
}

void Fence() {
#if defined(HOST_CUDA_TSAN)
  EngineScope scope;
  Thread& self = Self();
  for (void* address : self.unfenced_reads) Observe(address);
  self.unfenced_reads.clear();
  self.fenced = true;
#endif
}

}  // namespace host_cuda
