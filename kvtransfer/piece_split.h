// Cuts a range of finished blocks into pieces of bounded size. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/kv_layout.h"
#include "proto/transfer.pb.h"

namespace sluice::kvtransfer {

// Pieces of at most max_bytes that cover blocks [block_begin, block_end) x all layers x all heads exactly once. Whole
// blocks where they fit; a block that is larger than max_bytes is cut by layers.
// REQUIRES: one block of one layer fits in max_bytes. first_head: the first KV head of this rank, of the whole model.
std::vector<v1::Piece> SplitBlocks(const kernels::KvLayout& layout, int first_head, int block_begin, int block_end,
                                   int64_t max_bytes);

}  // namespace sluice::kvtransfer
