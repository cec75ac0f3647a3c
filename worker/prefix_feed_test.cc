#include "worker/prefix_feed.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <string>

namespace sluice::worker {
namespace {

constexpr int kBlock = 4;

// A router that believes what it is told; false where it has lost count.
class Follower {
 public:
  bool Hear(const v1::PrefixEvents& events) {
    for (const v1::PrefixEvent& event : events.events()) {
      if (event.kind() == v1::PrefixEvent::CLEARED) {
        known.clear();
        last_ = event.sequence();
        continue;
      }
      const size_t names = event.block_names().size() / 16;
      if (event.sequence() != 0) {
        if (event.sequence() != last_ + 1) return false;
        last_ += names;
      }
      for (size_t i = 0; i < names; ++i) {
        const std::string name = event.block_names().substr(16 * i, 16);
        if (event.kind() == v1::PrefixEvent::STORED) {
          known.insert(name);
        } else if (known.erase(name) == 0) {
          return false;
        }
      }
    }
    return true;
  }
  std::set<std::string> known;

 private:
  uint64_t last_ = 0;
};

std::set<std::string> Stored(const engine::PrefixCache& cache) {
  std::set<std::string> names;
  for (const engine::PrefixChange& change : cache.Snapshot()) names.insert(change.name.Bytes());
  return names;
}

class PrefixFeedTest : public ::testing::Test {
 protected:
  void Store(int32_t seed) {
    const std::vector<int32_t> tokens = {seed, seed, seed, seed};
    const engine::BlockHash root = engine::RootHash("", "", "f32.1", "");
    std::optional<std::vector<int32_t>> block = cache_.Allocate(1);
    ASSERT_TRUE(block.has_value());
    cache_.Store(block->front(), engine::ChainHash(root, tokens), root, tokens);
    cache_.Unref(block->front());
  }
  engine::BlockPool pool_{8};
  engine::PrefixCache cache_{&pool_, kBlock};
};

TEST_F(PrefixFeedTest, BeginsWithThePictureAndGoesOnWithChanges) {
  Store(1);
  PrefixFeed feed;
  const v1::PrefixEvents first = feed.Next(cache_);
  ASSERT_EQ(first.events_size(), 2);
  EXPECT_EQ(first.events(0).kind(), v1::PrefixEvent::CLEARED);
  EXPECT_EQ(first.events(0).sequence(), 1u);
  EXPECT_EQ(first.events(1).sequence(), 0u);
  EXPECT_EQ(feed.Next(cache_).events_size(), 0) << "nothing is new";
  Store(2);
  Store(3);
  const v1::PrefixEvents next = feed.Next(cache_);
  ASSERT_EQ(next.events_size(), 1) << "one event for both";
  EXPECT_EQ(next.events(0).sequence(), 2u);
  EXPECT_EQ(next.events(0).block_names().size(), 32u);
  feed.Restart();
  EXPECT_EQ(feed.Next(cache_).events(1).block_names().size(), 48u);
}

TEST_F(PrefixFeedTest, AnEmptyCacheIsToldToo) {
  PrefixFeed feed;
  EXPECT_EQ(feed.Next(cache_).events_size(), 1);
}

TEST_F(PrefixFeedTest, FollowersKnowWhatIsStored) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 rng(seed);
  PrefixFeed feed, lazy;
  Follower follower, late;
  for (int step = 0; step < 3000; ++step) {
    Store(int32_t(rng() % 40));
    if (rng() % 3 == 0) {
      ASSERT_TRUE(follower.Hear(feed.Next(cache_)));
      ASSERT_EQ(follower.known, Stored(cache_));
    }
    if (rng() % 100 == 0) feed.Restart();
    if (rng() % 500 == 0) {
      ASSERT_TRUE(late.Hear(lazy.Next(cache_)));
      ASSERT_EQ(late.known, Stored(cache_));
    }
  }
}

// More than the log keeps.
TEST_F(PrefixFeedTest, WhoIsTooFarBehindStartsAgain) {
  PrefixFeed feed;
  feed.Next(cache_);
  for (int32_t i = 0; i < 40000; ++i) Store(i);
  const v1::PrefixEvents again = feed.Next(cache_);
  EXPECT_EQ(again.events(0).kind(), v1::PrefixEvent::CLEARED);
  Follower follower;
  EXPECT_TRUE(follower.Hear(again));
  EXPECT_EQ(follower.known, Stored(cache_));
}

}  // namespace
}  // namespace sluice::worker
