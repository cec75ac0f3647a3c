#include "tests/host_cuda/engine/async_copy.h"

#include <utility>

#include "tests/host_cuda/engine/machine.h"
#include "tests/host_cuda/engine/sanitizers.h"

namespace host_cuda {

void IssueCopy(const AsyncCopy& copy) {
  EngineScope scope;
  Self().copies.open.push_back(copy);
}

void CommitCopies() {
  EngineScope scope;
  AsyncCopies& copies = Self().copies;
  copies.groups.push_back(std::move(copies.open));
  copies.open.clear();
}

bool TakeGroup(uint32_t pending, std::vector<AsyncCopy>* group) {
  EngineScope scope;
  AsyncCopies& copies = Self().copies;
  if (copies.groups.size() <= pending) return false;
  *group = std::move(copies.groups.front());
  copies.groups.pop_front();
  return true;
}

bool TakeAny(std::vector<AsyncCopy>* group) {
  if (TakeGroup(0, group)) return true;
  if (Self().copies.open.empty()) return false;
  CommitCopies();
  return TakeGroup(0, group);
}

}  // namespace host_cuda
