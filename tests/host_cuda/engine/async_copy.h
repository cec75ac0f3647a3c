// cp.async as late as the rules allow: its target is poisoned when it is issued, and its bytes arrive when the thread
// waits for their group. A kernel that reads before the wait, or writes the source meanwhile, sees it.
#pragma once

#include <cstdint>
#include <cstring>
#include <deque>
#include <vector>

namespace host_cuda {

struct AsyncCopy {
  void* to = nullptr;
  const void* from = nullptr;
  uint32_t bytes = 0, valid = 0;  // the rest is zeros
};

// One thread's groups.
struct AsyncCopies {
  std::vector<AsyncCopy> open;
  std::deque<std::vector<AsyncCopy>> groups;  // oldest first
  bool Empty() const { return open.empty() && groups.empty(); }
  void Clear() {
    open.clear();
    groups.clear();
  }
};

void IssueCopy(const AsyncCopy& copy);
void CommitCopies();
// Takes one group off while more than `pending` are left; false: none to take.
bool TakeGroup(uint32_t pending, std::vector<AsyncCopy>* group);
// The same for everything, committed or not.
bool TakeAny(std::vector<AsyncCopy>* group);

}  // namespace host_cuda
