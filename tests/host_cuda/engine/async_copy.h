// cp.async as late as the rules allow: its target is poisoned when it is issued, and its bytes arrive when the thread
// waits for their group, or when somebody waits at an mbarrier that the thread told to wait for them. A kernel that
// reads before the wait, or writes the source meanwhile, sees it.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

namespace host_cuda {

struct Thread;

struct AsyncCopy {
  void* to = nullptr;
  const void* from = nullptr;
  uint32_t bytes = 0, valid = 0;  // the rest is zeros
  uint64_t number = 0;            // of the thread's, in the block
};

// One thread's groups.
struct AsyncCopies {
  std::vector<AsyncCopy> open;
  std::deque<std::vector<AsyncCopy>> groups;  // oldest first
  uint64_t issued = 0;
  bool Empty() const { return open.empty() && groups.empty(); }
  void Clear() {
    open.clear();
    groups.clear();
  }
};

// An arrival at an mbarrier that is due once the copies that its thread had issued have arrived.
struct DeferredArrival {
  const void* barrier = nullptr;
  Thread* thread = nullptr;
  uint64_t issued = 0;
};

void IssueCopy(const AsyncCopy& copy);
void CommitCopies();
// Takes one group off while more than `pending` are left; false: none to take.
bool TakeGroup(uint32_t pending, std::vector<AsyncCopy>* group);
// The same for everything, committed or not.
bool TakeAny(std::vector<AsyncCopy>* group);

void DeferArrival(const void* barrier);
// Takes one arrival at the barrier off, and the copies that it still waits for; false: none to take.
bool TakeDeferred(const void* barrier, std::vector<AsyncCopy>* copies);

}  // namespace host_cuda
