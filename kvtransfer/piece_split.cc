#include "kvtransfer/piece_split.h"

#include <algorithm>

#include "glog/logging.h"

namespace sluice::kvtransfer {

std::vector<v1::Piece> SplitBlocks(const kernels::KvLayout& layout, int first_head, int block_begin, int block_end,
                                   int64_t max_bytes) {
  const int64_t per_layer = int64_t(layout.block_bytes());
  CHECK_LE(per_layer, max_bytes);
  const int layers = int(std::min<int64_t>(layout.num_layers, max_bytes / per_layer));
  const int blocks = int(std::max<int64_t>(1, max_bytes / (per_layer * layers)));
  std::vector<v1::Piece> pieces;
  for (int b = block_begin; b < block_end; b += blocks) {
    for (int l = 0; l < layout.num_layers; l += layers) {
      v1::Piece& piece = pieces.emplace_back();
      piece.set_block_begin(b);
      piece.set_block_end(std::min(b + blocks, block_end));
      piece.set_layer_begin(l);
      piece.set_layer_end(std::min(l + layers, layout.num_layers));
      piece.set_head_begin(first_head);
      piece.set_head_end(first_head + layout.num_kv_heads);
    }
  }
  return pieces;
}

}  // namespace sluice::kvtransfer
