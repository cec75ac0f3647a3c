// KV blocks that outlive their sequence, found again by the tokens that led to them. Pure: block ids only.
//
// Blocks are handed out and given back through the cache: it sits on a BlockPool and holds one reference of its own on
// every block it has stored. A stored block that nobody else holds is evictable; Allocate takes free blocks first and
// then evicts, least recently used first. So FREE, the gauge that everybody watches, is free + evictable.
//
// Invariants: a block is stored under at most one name and a name has at most one block; evictable == stored with the
// cache's reference only; a hit is verified token by token, so two prefixes never share a block by a collision of their
// last names (one of an earlier block is caught there).
#pragma once

#include <cstdint>
#include <list>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/block_hash.h"
#include "engine/block_pool.h"
#include "engine/prefix_events.h"

namespace sluice::engine {

struct PrefixCacheStats {
  uint64_t lookups = 0;
  uint64_t looked_up_tokens = 0;
  uint64_t hit_tokens = 0;
  uint64_t evicted_blocks = 0;
  uint64_t collisions = 0;  // equal names, other tokens
};

class PrefixCache {
 public:
  // `pool` must outlive the cache and be changed through it only.
  PrefixCache(BlockPool* pool, int block_size) : pool_(pool), block_size_(block_size), nodes_(pool->total()) {}

  // All or nothing, as BlockPool::Allocate; evicts what it needs.
  std::optional<std::vector<int32_t>> Allocate(int count);
  void Ref(int32_t block);
  // Give a sequence's blocks back last one first: then the ends of prefixes are evicted before their beginnings.
  void Unref(int32_t block);

  // The blocks of the longest stored prefix, at most max_blocks, each with a reference for the caller. names[i] is the
  // name of the tokens [i * block_size, (i + 1) * block_size).
  std::vector<int32_t> Match(std::span<const BlockHash> names, std::span<const int32_t> tokens, int max_blocks);

  // A lookup that led to an admission; the others are repeated until they do, and would count twice.
  void CountLookup(int tokens, int hit_tokens);

  // `block` holds the KV of the block_size `tokens` that `name` names and that follow `parent`. REQUIRES: the caller
  // holds it. No-op when a block is stored under that name already.
  void Store(int32_t block, const BlockHash& name, const BlockHash& parent, std::span<const int32_t> tokens);

  // Forgets everything that nobody holds.
  void Clear();

  int free() const { return pool_->free() + int(lru_.size()); }
  int stored() const { return int(by_name_.size()); }
  const PrefixCacheStats& stats() const { return stats_; }
  const PrefixEventLog& events() const { return events_; }

  // All that is stored now, as changes without a number: what a follower starts with; it goes on after events().last().
  std::vector<PrefixChange> Snapshot() const;

 private:
  struct Node {
    bool stored = false;
    bool evictable = false;
    BlockHash name;
    BlockHash parent;
    std::vector<int32_t> tokens;
    std::list<int32_t>::iterator lru;  // when evictable
  };

  void Evict(int32_t block);

  BlockPool* const pool_;
  const int block_size_;
  std::vector<Node> nodes_;                                          // by block id
  std::unordered_map<BlockHash, int32_t, HashOfBlockHash> by_name_;  // name -> block
  std::list<int32_t> lru_;                                           // evictable blocks, least recently used first
  PrefixEventLog events_;
  PrefixCacheStats stats_;
};

}  // namespace sluice::engine
