// The KV blocks of an engine's sequences: block tables over a pool with a prefix cache. Pure: no memory of the device.
//
// Words: FREE is free + evictable cached; `returning` are blocks that were given back while a step is under way which
// may still write to them: they are FREE when it is done. A step may read and write the blocks that a sequence held when
// it was planned, and others outside (transfers) write to blocks as soon as they get them; hence the wait.
//
// Invariants: every block is FREE, returning or held by at least one sequence's table; a block that a step writes to is
// held by one sequence only (copy on write) and not stored in the cache.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/block_pool.h"
#include "engine/prefix_cache.h"
#include "engine/sequence.h"

namespace sluice::engine {

// Copies all layers of a block before the step that writes to `to`.
struct BlockCopy {
  int32_t from = 0;
  int32_t to = 0;
};

class KvBlocks {
 public:
  KvBlocks(int num_blocks, int block_size, bool prefix_caching)
      : pool_(num_blocks),
        cache_(&pool_, block_size),
        block_size_(block_size),
        prefix_caching_(prefix_caching),
        holders_(size_t(num_blocks), 0) {}

  // Gives a sequence without blocks those of `tokens` tokens; the longest cached prefix of its known tokens is among
  // them and counts as computed, all but the last token at most. All or nothing; `keep_free` blocks are FREE afterwards.
  bool Admit(Sequence& s, int tokens, int keep_free);

  // Makes the tokens [s.scheduled, end) writable: more blocks, and copies of shared ones. All or nothing.
  bool Extend(Sequence& s, int end, std::vector<BlockCopy>& copies);

  // How many blocks Extend would take.
  int NeededToExtend(const Sequence& s, int end) const;

  // Gives back the blocks past `tokens` tokens.
  void Shrink(Sequence& s, int tokens);

  // `to` gets the blocks of the first `tokens` tokens of `from`, which both hold from then on.
  void Share(const Sequence& from, int tokens, Sequence& to);

  // Gives back all blocks.
  void Release(Sequence& s);

  // Offers the full blocks of s.computed to the cache.
  void StoreComputed(Sequence& s);

  // Steps are numbered from 1 without gaps and end in order. StepBegun: the step is planned, all Extends for it are made.
  void StepBegun(uint64_t step) { begun_ = step; }
  void StepDone(uint64_t step);

  int total() const { return pool_.total(); }
  int free() const { return cache_.free(); }
  int returning() const { return returning_; }
  int block_size() const { return block_size_; }
  uint64_t copies() const { return copies_; }
  PrefixCache& cache() { return cache_; }
  const PrefixCache& cache() const { return cache_; }

 private:
  struct Batch {
    uint64_t last_user = 0;  // the step that may still use them
    std::vector<int32_t> blocks;
  };

  void Hold(std::span<const int32_t> blocks);
  void GiveBack(std::vector<int32_t> blocks, uint64_t last_user);
  bool MustCopy(const Sequence& s) const;
  void NameBlocks(Sequence& s, int count) const;

  BlockPool pool_;
  PrefixCache cache_;
  const int block_size_;
  const bool prefix_caching_;
  std::vector<int> holders_;  // by block: tables it is in; one that was given back is in none, though it may be returning
  uint64_t begun_ = 0;
  uint64_t done_ = 0;
  std::vector<Batch> waiting_;
  int returning_ = 0;
  uint64_t copies_ = 0;
};

}  // namespace sluice::engine
