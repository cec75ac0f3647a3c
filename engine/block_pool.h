// Which KV blocks are free. Pure: no memory, no threads, no clock; ids are indices into a kernels::KvPool.
//
// Invariants: an id is free or held, never both; free + held == total. A block has a reference count, so that forks of
// one prompt can share it; it is free again when the count reaches zero.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace sluice::engine {

class BlockPool {
 public:
  explicit BlockPool(int num_blocks);

  // All or nothing: `count` blocks with one reference each, or nullopt and no change.
  std::optional<std::vector<int32_t>> Allocate(int count);

  void Ref(int32_t block);    // REQUIRES: held
  void Unref(int32_t block);  // REQUIRES: held

  int total() const { return int(refs_.size()); }
  int free() const { return int(free_.size()); }
  int refs(int32_t block) const { return refs_[block]; }

 private:
  std::vector<int32_t> free_;  // used as a stack: the warmest block goes first
  std::vector<int32_t> refs_;
};

}  // namespace sluice::engine
