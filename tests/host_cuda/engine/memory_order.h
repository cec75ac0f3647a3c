// volatile and relaxed accesses, acquire, release and fences, as TSan should see them, and a turn for others in a loop
// that spins: no thread is ever preempted.
//
// The accesses themselves are made where these are called; TSan learns the edges: a relaxed store behind a fence
// publishes, a relaxed load observes once a fence follows it. Without TSan memory is sequentially consistent: only TSan
// finds a missing fence, and only between threads of one block.
#pragma once

#include "tests/host_cuda/engine/diagnose.h"

namespace host_cuda {

enum class Ordering { kRelaxed, kAcquire, kRelease, kAcquireRelease };

void BeforeStore(void* address, Ordering ordering);
void AfterLoad(void* address, Ordering ordering, Loc where);
void Fence();

}  // namespace host_cuda
