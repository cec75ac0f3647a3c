// A model of a worker's prefix cache: names of full blocks (engine/block_hash, as real workers and routers have them),
// least recently used out first. No tokens and no KV. Tells its router of changes as worker/prefix_feed does: first
// everything, then numbered changes.
#pragma once

#include <cstdint>
#include <list>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "engine/block_hash.h"
#include "proto/worker.pb.h"

namespace sluice::simulation {

namespace pb = ::sluice::v1;
using engine::BlockHash;

inline constexpr char kNumerics[] = "simulated.1";

// The names of all full blocks of a sequence, in order.
std::vector<BlockHash> NamesOf(const pb::SequenceSpec& spec, int block_size);

class PrefixCacheModel {
 public:
  // How many of the first blocks are here; they count as used now.
  int Hit(const std::vector<BlockHash>& chain, int most);
  void Store(const std::vector<BlockHash>& chain, int blocks);
  // At most so many blocks stay.
  void Shrink(int64_t capacity);
  int64_t size() const { return int64_t(where_.size()); }

  // ---- for the one router ----
  void Begin();  // it knows nothing
  void NobodyListens();
  pb::PrefixEvents TakeEvents();

 private:
  struct Hash {
    size_t operator()(const BlockHash& hash) const { return size_t(hash.lo); }
  };
  void Changed(bool stored, const BlockHash& block);

  std::list<BlockHash> used_;  // the least recently used first
  absl::flat_hash_map<BlockHash, std::list<BlockHash>::iterator, Hash> where_;
  uint64_t last_ = 0;  // number of the newest change
  bool listens_ = false;
  bool begins_ = false;
  std::vector<std::pair<bool, BlockHash>> changes_;  // since it was told last: stored, name
};

}  // namespace sluice::simulation
