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
    for (const v1::Piece& p : SplitBlocks(layout, 3, begin, end, max_bytes)) {
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

}  // namespace
}  // namespace sluice::kvtransfer
