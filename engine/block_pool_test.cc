#include "engine/block_pool.h"

#include <map>
#include <random>
#include <set>

#include "gtest/gtest.h"

namespace sluice::engine {
namespace {

TEST(BlockPool, IsAllOrNothing) {
  BlockPool pool(4);
  EXPECT_EQ(pool.total(), 4);
  ASSERT_TRUE(pool.Allocate(3));
  EXPECT_FALSE(pool.Allocate(2));
  EXPECT_EQ(pool.free(), 1);
  EXPECT_TRUE(pool.Allocate(0)->empty());
  ASSERT_TRUE(pool.Allocate(1));
  EXPECT_EQ(pool.free(), 0);
}

TEST(BlockPool, ABlockIsFreeWhenItsLastReferenceGoes) {
  BlockPool pool(1);
  const int32_t block = pool.Allocate(1)->front();
  pool.Ref(block);
  pool.Unref(block);
  EXPECT_EQ(pool.free(), 0);
  EXPECT_EQ(pool.refs(block), 1);
  pool.Unref(block);
  EXPECT_EQ(pool.free(), 1);
}

TEST(BlockPoolDeathTest, AFreeBlockHasNoReferences) {
  BlockPool pool(2);
  EXPECT_DEATH(pool.Unref(0), "free");
  EXPECT_DEATH(pool.Ref(1), "free");
}

// Random operations against the obvious model: a map from held block to its references.
TEST(BlockPool, AgreesWithAModel) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  const int total = 1 + int(random() % 40);
  BlockPool pool(total);
  std::map<int32_t, int> model;
  for (int i = 0; i < 20000; ++i) {
    if (random() % 2) {
      const int count = int(random() % 6);
      const auto blocks = pool.Allocate(count);
      ASSERT_EQ(blocks.has_value(), count <= total - int(model.size()));
      if (!blocks) continue;
      ASSERT_EQ(int(blocks->size()), count);
      for (int32_t block : *blocks) {
        ASSERT_TRUE(block >= 0 && block < total);
        ASSERT_TRUE(model.emplace(block, 1).second) << "handed out twice: " << block;
      }
    } else if (!model.empty()) {
      const auto it = std::next(model.begin(), random() % model.size());
      if (random() % 3 == 0) {
        pool.Ref(it->first);
        ++it->second;
      } else {
        pool.Unref(it->first);
        if (--it->second == 0) model.erase(it);
      }
    }
    ASSERT_EQ(pool.free(), total - int(model.size()));
    for (const auto& [block, refs] : model) ASSERT_EQ(pool.refs(block), refs);
  }
}

}  // namespace
}  // namespace sluice::engine
