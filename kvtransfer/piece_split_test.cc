#include "kvtransfer/piece_split.h"

#include <random>
#include <set>

#include "gtest/gtest.h"
#include "kvtransfer/piece_copy.h"

namespace sluice::kvtransfer {
namespace {

TEST(SplitBlocks, CoversEveryCellOnceWithinTheLimit) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 rng(seed);
  for (int round = 0; round < 500; ++round) {
    const kernels::KvLayout layout{1 + int(rng() % 7), 1 + int(rng() % 4), 8, 1 + int(rng() % 16),
                                   kernels::KvDType::kF32};
    const int64_t max_bytes = int64_t(layout.block_bytes()) * int64_t(1 + rng() % 20) + int64_t(rng() % 100);
    const int begin = int(rng() % 5), end = begin + int(rng() % 30);
    std::set<std::pair<int, int>> cells;
    const KvShard shard{0, layout.num_layers, 3, 3 + layout.num_kv_heads};
    // In two halves of layers, as the last chunk goes.
    const int half = int(rng() % uint64_t(layout.num_layers + 1));
    std::vector<v1::Piece> pieces = SplitBlocks(layout, shard, begin, end, max_bytes, {0, half});
    for (const v1::Piece& p : pieces) EXPECT_LE(p.layer_end(), half);
    for (const v1::Piece& p : SplitBlocks(layout, shard, begin, end, max_bytes, {.begin = half})) pieces.push_back(p);
    for (const v1::Piece& p : pieces) {
      EXPECT_LE(int64_t(PieceBytes(p, layout)), max_bytes);
      EXPECT_EQ(p.head_begin(), 3);
      EXPECT_EQ(p.head_end(), 3 + layout.num_kv_heads);
      for (int b = p.block_begin(); b < p.block_end(); ++b) {
        for (int l = p.layer_begin(); l < p.layer_end(); ++l) EXPECT_TRUE(cells.emplace(b, l).second) << b << " " << l;
      }
    }
    EXPECT_EQ(int(cells.size()), (end - begin) * layout.num_layers);
    if (!cells.empty()) {
      EXPECT_EQ(cells.begin()->first, begin);
      EXPECT_EQ(cells.rbegin()->first, end - 1);
    }
  }
}

TEST(SplitBlocks, OnlyTheShard) {
  const kernels::KvLayout layout{6, 4, 8, 16, kernels::KvDType::kF32};
  for (const v1::Piece& p : SplitBlocks(layout, {2, 5, 1, 3}, 0, 9, 1 << 20)) {
    EXPECT_EQ(p.layer_begin(), 2);
    EXPECT_EQ(p.layer_end(), 5);
    EXPECT_EQ(p.head_begin(), 1);
    EXPECT_EQ(p.head_end(), 3);
  }
  EXPECT_TRUE(SplitBlocks(layout, {2, 5, 1, 1}, 0, 9, 1 << 20).empty());
  EXPECT_TRUE(SplitBlocks(layout, {2, 5, 1, 3}, 0, 9, 1 << 20, {0, 2}).empty());
}

}  // namespace
}  // namespace sluice::kvtransfer
