// Which worker has which prefix: the router's picture of the workers' prefix caches. Pure.
//
// A worker's Work stream tells what its cache stored and removed, numbered; a gap makes the picture of that worker void
// until it has told everything again. Beside it stand promises: the blocks that a worker will have because the router
// has just sent them there, so that a burst with one prefix meets at one worker before its cache has said anything.
//
// Promises: a worker that is gone is forgotten at once; no more than `limit` (block, worker) entries are kept, and what
// would go beyond is left out, which costs hits and nothing else. Names are 128-bit chained hashes (engine/block_hash),
// so an entry names a whole prefix; what is wrong or stale in here costs time, never a token.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "engine/block_hash.h"
#include "proto/worker.pb.h"

namespace sluice::router {

namespace pb = ::sluice::v1;

class PrefixIndex {
 public:
  explicit PrefixIndex(size_t limit) : limit_(limit) {}

  // False: something is missing; the worker's picture is void, and it has to tell everything again.
  bool Apply(uint64_t worker, const pb::PrefixEvents& events);

  void Forget(uint64_t worker);

  // Blocks that the worker is about to have; each Promise is taken back by one Release with the same blocks.
  void Promise(uint64_t worker, std::span<const engine::BlockHash> blocks);
  void Release(uint64_t worker, std::span<const engine::BlockHash> blocks);

  // Leading blocks that each worker has, or is about to have; workers without the first are not in it.
  std::map<uint64_t, int> Match(std::span<const engine::BlockHash> blocks) const;

  size_t entries() const { return entries_; }
  size_t left_out() const { return left_out_; }  // for want of room, since the start
  uint64_t last_of(uint64_t worker) const;       // number of the newest change that was applied

 private:
  using Slot = uint16_t;
  struct Holder {
    Slot slot = 0;
    bool stored = false;
    uint16_t promises = 0;
  };
  using Holders = absl::InlinedVector<Holder, 2>;
  struct Worker {
    Slot slot = 0;
    bool listening = false;  // told everything once, and nothing is missing since
    uint64_t last = 0;
    uint64_t blocks = 0;  // entries of it
  };
  struct Hash {
    size_t operator()(const engine::BlockHash& hash) const { return size_t(hash.lo); }
  };

  Worker* Find(uint64_t worker, bool make);
  Holder* FindHolder(const engine::BlockHash& name, Slot slot, bool make, Worker& worker);
  void Settle(const engine::BlockHash& name, Slot slot, Worker& worker);  // drops an entry that says nothing
  void Void(Worker& worker);

  size_t limit_;
  size_t entries_ = 0;
  size_t left_out_ = 0;
  std::map<uint64_t, Worker> workers_;
  std::vector<uint64_t> owners_;  // by slot; 0: free
  absl::flat_hash_map<engine::BlockHash, Holders, Hash> blocks_;
};

}  // namespace sluice::router
