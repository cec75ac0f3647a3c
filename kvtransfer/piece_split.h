// Cuts a range of finished blocks into pieces of bounded size. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/kv_layout.h"
#include "kvtransfer/reshard_plan.h"
#include "proto/transfer.pb.h"

namespace sluice::kvtransfer {

// Half open; the default: all.
struct LayerRange {
  int begin = 0;
  int end = 1 << 30;
};

// Pieces of at most max_bytes that cover blocks [block_begin, block_end) x the shard's heads x those of its layers
// that are in `layers` exactly once.
// Whole blocks where they fit; a block that is larger than max_bytes is cut by layers.
// REQUIRES: one block of one layer fits in max_bytes.
std::vector<v1::Piece> SplitBlocks(const kernels::KvLayout& layout, const KvShard& shard, int block_begin,
                                   int block_end, int64_t max_bytes, LayerRange layers = {});

}  // namespace sluice::kvtransfer
