#include "kvtransfer/piece_split.h"

#include <algorithm>

#include "glog/logging.h"

namespace sluice::kvtransfer {

std::vector<v1::Piece> SplitBlocks(const kernels::KvLayout& layout, const KvShard& all, int block_begin, int block_end,
                                   int64_t max_bytes, LayerRange range) {
  KvShard shard = all;
  shard.layer_begin = std::max(all.layer_begin, range.begin);
  shard.layer_end = std::min(all.layer_end, range.end);
  std::vector<v1::Piece> pieces;
  if (shard.layer_begin >= shard.layer_end || shard.head_begin >= shard.head_end) return pieces;
  const int64_t per_layer = 2 * int64_t(shard.head_end - shard.head_begin) * int64_t(layout.head_bytes());
  CHECK_LE(per_layer, max_bytes);
  const int layers = int(std::min<int64_t>(shard.layer_end - shard.layer_begin, max_bytes / per_layer));
  const int blocks = int(std::max<int64_t>(1, max_bytes / (per_layer * layers)));
  for (int b = block_begin; b < block_end; b += blocks) {
    for (int l = shard.layer_begin; l < shard.layer_end; l += layers) {
      v1::Piece& piece = pieces.emplace_back();
      piece.set_block_begin(b);
      piece.set_block_end(std::min(b + blocks, block_end));
      piece.set_layer_begin(l);
      piece.set_layer_end(std::min(l + layers, shard.layer_end));
      piece.set_head_begin(shard.head_begin);
      piece.set_head_end(shard.head_end);
    }
  }
  return pieces;
}

}  // namespace sluice::kvtransfer
