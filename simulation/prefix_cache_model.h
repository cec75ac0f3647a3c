// A model of a worker's prefix cache: names of full blocks, each chained to the one before, least recently used out
// first. No tokens and no KV.
//
// Changes are told as the PrefixEvents of worker.proto, where somebody asked for them; how blocks are named is a
// parameter, so that a router that names blocks itself and the model can agree.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "proto/worker.pb.h"

namespace sluice::simulation {

namespace pb = ::sluice::v1;

// A block's name: 16 bytes on the wire.
struct BlockName {
  uint64_t hi = 0;
  uint64_t lo = 0;
  bool operator==(const BlockName&) const = default;
  template <typename H>
  friend H AbslHashValue(H h, const BlockName& name) {
    return H::combine(std::move(h), name.lo);
  }
  std::string Bytes() const;
};

// The names of all full blocks of a sequence, in order.
using NameBlocks = std::function<std::vector<BlockName>(const pb::SequenceSpec& spec, int block_size)>;
std::vector<BlockName> ChainedNames(const pb::SequenceSpec& spec, int block_size);

class PrefixCacheModel {
 public:
  // `tells`: changes are kept for TakeEvents.
  explicit PrefixCacheModel(bool tells) : tells_(tells) {}

  // How many of the first blocks are here; they count as used now.
  int Hit(const std::vector<BlockName>& chain, int most);
  void Store(const std::vector<BlockName>& chain, int blocks);
  // At most so many blocks stay.
  void Shrink(int64_t capacity);

  int64_t size() const { return int64_t(where_.size()); }
  std::vector<pb::PrefixEvent> TakeEvents();

 private:
  void Tell(pb::PrefixEvent::Kind kind, const BlockName& block, const BlockName* parent);

  const bool tells_;
  uint64_t sequence_ = 0;
  std::list<BlockName> used_;  // the least recently used first
  absl::flat_hash_map<BlockName, std::list<BlockName>::iterator> where_;
  std::vector<pb::PrefixEvent> events_;
};

}  // namespace sluice::simulation
