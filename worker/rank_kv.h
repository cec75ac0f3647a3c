// One KV pool made of the pools of all ranks of an instance whose GPUs keep their own heads: what moves KV between
// workers sees the whole model's heads at rank 0, as on the CPU, where ranks share one pool.
//
// Rank 0 asks each other rank, through memory that they share, to gather or scatter its heads of a slice, works on its
// own meanwhile, and puts the parts together. Cost: of the others' heads one copy of the host's memory more than direct
// channels between ranks would have, at both ends, and the checksum's pass over the whole on rank 0; the GPUs' copies
// run side by side.
//
// Limits: one slice at a time; in tiles of what a box holds. A rank that does not answer within the time-out, or is
// known to be lost, fails this and every later call.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "kernels/backend.h"
#include "kernels/collective.h"

namespace sluice::worker {

// What rank 0 asks of one other rank at a time. In memory that both share, zero at first. A request is there while
// `asked` is ahead of `done`; each word is written by one side alone.
struct RankKvBox {
  static constexpr size_t kBytes = size_t{4} << 20;
  static constexpr int kBlocks = 4096;

  alignas(64) std::atomic<uint32_t> asked;
  alignas(64) std::atomic<uint32_t> done;
  int32_t scatter;                                       // else gather
  int32_t layer_begin, layer_end, head_begin, head_end;  // heads of the rank's pool
  int32_t num_blocks;
  int32_t blocks[kBlocks];
  int32_t code;       // an absl::StatusCode
  char message[512];  // of it, ending with 0
  alignas(64) std::byte data[kBytes];
};

class RankKv final : public kernels::DeviceKv {
 public:
  // [begin, end) of the whole model's KV heads; several ranks may have the same.
  struct Heads {
    int begin = 0, end = 0;
  };

  // `boxes`: of ranks 1, 2, ...; `heads`: of all ranks; `own`: rank 0's pool. All that is referred to outlives this.
  // `ranks` tells who is lost.
  RankKv(const kernels::KvLayout& whole, std::span<RankKvBox> boxes, std::vector<Heads> heads, kernels::DeviceKv* own,
         const kernels::Collective* ranks, absl::Duration timeout);

  // Slices are of the whole model's heads.
  absl::StatusOr<uint64_t> Gather(const kernels::KvSlice& slice, std::span<std::byte> out) override;
  absl::StatusOr<uint64_t> Scatter(const kernels::KvSlice& slice, std::span<const std::byte> in) override;

 private:
  // Some layers and blocks of a slice: as much as a box holds.
  struct Tile {
    int layer_begin = 0, layer_end = 0;
    int first_block = 0, num_blocks = 0;  // of the slice's list
  };
  // A rank's share of a slice's heads.
  struct Part {
    size_t rank = 0;
    int head_begin = 0, head_end = 0;  // of the whole model
  };

  std::vector<Part> PartsOf(const kernels::KvSlice& slice, bool all_copies) const;
  absl::Status ForEachTile(const kernels::KvSlice& slice, const std::vector<Part>& parts,
                           const std::function<absl::Status(const Tile&)>& run) const;
  // The part's bytes of a tile in a rank's pool, and in `whole`, of the slice: copies between them.
  void CopyPart(const kernels::KvSlice& slice, const Tile& tile, const Part& part, std::byte* whole, std::byte* packed,
                bool to_whole) const;
  size_t TileBytes(const Tile& tile, const Part& part) const;
  void Ask(const kernels::KvSlice& slice, const Tile& tile, const Part& part, bool scatter);
  absl::Status Await(const Part& part) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  kernels::KvSlice OwnSlice(const kernels::KvSlice& slice, const Tile& tile, const Part& part) const;

  const kernels::KvLayout whole_;
  const std::span<RankKvBox> boxes_;
  const std::vector<Heads> heads_;
  kernels::DeviceKv* const own_;
  const kernels::Collective* const ranks_;
  const absl::Duration timeout_;
  absl::Mutex mutex_;  // the boxes have one user
  absl::Status failed_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::byte> packed_ ABSL_GUARDED_BY(mutex_);  // rank 0's own part of a tile
};

// The other end: a thread of a rank but 0 that does what rank 0 asks.
class RankKvServer {
 public:
  // Both outlive it. An error of the GPU is rank 0's to hear.
  RankKvServer(RankKvBox* box, kernels::DeviceKv* pool, const kernels::KvLayout& layout);
  ~RankKvServer();
  RankKvServer(const RankKvServer&) = delete;
  RankKvServer& operator=(const RankKvServer&) = delete;

 private:
  void Run();
  absl::Status Serve();

  RankKvBox* const box_;
  kernels::DeviceKv* const pool_;
  const kernels::KvLayout layout_;
  std::atomic<bool> leaving_ = false;
  std::thread thread_;
};

}  // namespace sluice::worker
