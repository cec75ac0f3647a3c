#include "tests/host_cuda/engine/async_copy.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "tests/host_cuda/engine/machine.h"
#include "tests/host_cuda/engine/sanitizers.h"

namespace host_cuda {
namespace {

void MoveIssued(std::vector<AsyncCopy>& from, uint64_t issued, std::vector<AsyncCopy>* to) {
  const auto later = std::find_if(from.begin(), from.end(), [=](const AsyncCopy& c) { return c.number >= issued; });
  to->insert(to->end(), from.begin(), later);
  from.erase(from.begin(), later);
}

}  // namespace

void IssueCopy(const AsyncCopy& copy) {
  EngineScope scope;
  AsyncCopies& copies = Self().copies;
  copies.open.push_back(copy);
  copies.open.back().number = copies.issued++;
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

void DeferArrival(const void* barrier) {
  EngineScope scope;
  Thread& self = Self();
  this_machine->deferred.push_back({barrier, &self, self.copies.issued});
}

bool TakeDeferred(const void* barrier, std::vector<AsyncCopy>* copies) {
  EngineScope scope;
  std::vector<DeferredArrival>& deferred = this_machine->deferred;
  const auto found = std::find_if(deferred.begin(), deferred.end(),
                                  [=](const DeferredArrival& arrival) { return arrival.barrier == barrier; });
  if (found == deferred.end()) return false;
  copies->clear();
  AsyncCopies& of = found->thread->copies;
  for (std::vector<AsyncCopy>& group : of.groups) MoveIssued(group, found->issued, copies);
  MoveIssued(of.open, found->issued, copies);
  deferred.erase(found);
  return true;
}

}  // namespace host_cuda
