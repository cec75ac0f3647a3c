#include "engine/prefix_cache.h"

#include <map>
#include <random>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice::engine {
namespace {

using Tokens = std::vector<int32_t>;

Tokens Count(int n, int first = 0) {
  Tokens tokens;
  for (int i = 0; i < n; ++i) tokens.push_back(first + i);
  return tokens;
}

TEST(BlockHash, CoversTokensOrderParentAndRoot) {
  const BlockHash root = RootHash("model", "", "f32.1", "");
  std::set<BlockHash> seen = {root, RootHash("model", "", "f32.1", "tenant"), RootHash("model", "f32.1", "", ""),
                              RootHash("mode", "l", "f32.1", ""), RootHash("other", "", "f32.1", "")};
  EXPECT_EQ(seen.size(), 5u);
  for (const Tokens& t : {Tokens{1, 2}, Tokens{2, 1}, Tokens{1, 2, 0}, Tokens{1}, Tokens{0, 1, 2}, Tokens{-1, 2}}) {
    EXPECT_TRUE(seen.insert(ChainHash(root, t)).second);
    EXPECT_TRUE(seen.insert(ChainHash(ChainHash(root, t), t)).second);
  }
  const auto hashes = HashBlocks(root, Count(10), 3);
  ASSERT_EQ(hashes.size(), 3u);
  EXPECT_EQ(hashes[1], ChainHash(ChainHash(root, Tokens{0, 1, 2}), Tokens{3, 4, 5}));
  EXPECT_EQ(hashes[0].Bytes().size(), 16u);
}

// Every bit of the name depends on every token: no lane is constant, no two of many names share a half.
TEST(BlockHash, BothHalvesSpread) {
  std::set<uint64_t> his, los;
  for (int a = 0; a < 200; ++a) {
    for (int b = 0; b < 200; ++b) {
      const BlockHash h = ChainHash({}, Tokens{a, b});
      his.insert(h.hi), los.insert(h.lo);
    }
  }
  EXPECT_EQ(his.size(), 40000u);
  EXPECT_EQ(los.size(), 40000u);
}

TEST(PrefixCache, FindsTheLongestPrefixAndKeepsIt) {
  BlockPool pool(8);
  PrefixCache cache(&pool, 4);
  const BlockHash root = RootHash("m", "", "n", "");
  const auto blocks = *cache.Allocate(3);
  const auto names = HashBlocks(root, Count(14), 4);
  for (size_t i = 0; i < 3; ++i) {
    cache.Store(blocks[i], names[i], i == 0 ? root : names[i - 1], Count(4, int(i) * 4));
  }
  for (const int32_t b : blocks) cache.Unref(b);
  EXPECT_EQ(cache.free(), 8);
  EXPECT_EQ(pool.free(), 5);
  EXPECT_EQ(cache.Match(names, Count(14), 9), blocks);
  EXPECT_EQ(cache.free(), 5) << "a hit is held";
  for (const int32_t b : blocks) cache.Unref(b);
  EXPECT_EQ(cache.Match(names, Count(14), 2).size(), 2u) << "at most max_blocks";
  EXPECT_TRUE(cache.Match(HashBlocks(RootHash("m", "", "n", "salt"), Count(14), 4), Count(14), 9).empty());
  Tokens other = Count(14);
  other[5] = 99;
  EXPECT_EQ(cache.Match(HashBlocks(root, other, 4), other, 9).size(), 1u);
  EXPECT_EQ(cache.stats().collisions, 0u);
  EXPECT_EQ(cache.Match(names, other, 9).size(), 1u) << "equal names, other tokens";
  EXPECT_EQ(cache.stats().collisions, 1u);
}

TEST(PrefixCache, EvictsTheLeastRecentlyUsedAndNothingThatIsHeld) {
  BlockPool pool(3);
  PrefixCache cache(&pool, 1);
  const BlockHash root{};
  for (int t = 0; t < 3; ++t) {
    const int32_t b = (*cache.Allocate(1))[0];
    cache.Store(b, ChainHash(root, Tokens{t}), root, Tokens{t});
    cache.Unref(b);
  }
  const auto match = [&](int t) { return cache.Match(HashBlocks(root, Tokens{t}, 1), Tokens{t}, 1); };
  const int32_t held = match(0)[0];
  EXPECT_FALSE(cache.Allocate(3).has_value());
  const auto fresh = cache.Allocate(1);
  EXPECT_TRUE(match(1).empty()) << "1 was the least recently used";
  EXPECT_EQ(match(2).size(), 1u);
  EXPECT_NE((*fresh)[0], held);
}

TEST(PrefixCache, AnnouncesChangesInOrder) {
  BlockPool pool(1);
  PrefixCache cache(&pool, 2);
  int32_t b = (*cache.Allocate(1))[0];
  const BlockHash first = ChainHash({}, Tokens{1, 2}), second = ChainHash({}, Tokens{3, 4});
  cache.Store(b, first, {}, Tokens{1, 2});
  cache.Store(b, first, {}, Tokens{1, 2});  // again: nothing new
  cache.Unref(b);
  b = (*cache.Allocate(1))[0];
  cache.Store(b, second, {}, Tokens{3, 4});
  const auto changes = *cache.events().Since(0);
  ASSERT_EQ(changes.size(), 3u);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(changes[i].number, i + 1);
  EXPECT_TRUE(changes[0].stored && !changes[1].stored && changes[2].stored);
  EXPECT_EQ(changes[1].name, first);
  EXPECT_EQ(cache.events().Since(2)->size(), 1u);
  EXPECT_TRUE(cache.events().Since(3)->empty());
  const auto snapshot = cache.Snapshot();
  ASSERT_EQ(snapshot.size(), 1u);
  EXPECT_EQ(snapshot[0].name, second);
}

TEST(PrefixEventLog, AFollowerThatIsTooFarBehindIsTold) {
  PrefixEventLog log(3);
  EXPECT_TRUE(log.Since(0)->empty());
  for (int i = 0; i < 5; ++i) log.Add(true, {uint64_t(i), 0}, {});
  EXPECT_FALSE(log.Since(0).has_value());
  EXPECT_FALSE(log.Since(1).has_value());
  ASSERT_EQ(log.Since(2)->size(), 3u);
  EXPECT_EQ(log.Since(2)->front().number, 3u);
  EXPECT_EQ(log.last(), 5u);
}

// Against a simple model: what may be found is exactly what was stored and has not been announced as removed; reference
// counts are those of the holders.
TEST(PrefixCache, RandomOperationsAgainstAModel) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 rng(seed);
  constexpr int kBlocks = 24, kSize = 3;
  BlockPool pool(kBlocks);
  PrefixCache cache(&pool, kSize);
  const BlockHash root = RootHash("m", "", "n", "");
  std::map<Tokens, int32_t> model;  // whole prefix -> block, as stored now
  std::map<BlockHash, Tokens> name_of;
  std::vector<std::vector<int32_t>> holders;
  std::vector<int> held(kBlocks, 0);
  uint64_t hits = 0, evictions = 0, followed = 0;
  const auto follow = [&] {
    const auto changes = *cache.events().Since(followed);
    for (const PrefixChange& c : changes) {
      followed = c.number;
      if (!c.stored) {
        ASSERT_EQ(model.erase(name_of.at(c.name)), 1u);
        ++evictions;
      }
    }
  };
  for (int step = 0; step < 200000; ++step) {
    if (rng() % 2 == 0 && !holders.empty()) {
      const size_t i = rng() % holders.size();
      for (auto it = holders[i].rbegin(); it != holders[i].rend(); ++it) cache.Unref(*it), --held[size_t(*it)];
      holders.erase(holders.begin() + long(i));
    } else {
      // A sequence over a small alphabet: reuse what matches, allocate and store the rest.
      Tokens tokens(1 + rng() % 20);
      for (auto& t : tokens) t = int32_t(rng() % 2);
      const auto names = HashBlocks(root, tokens, kSize);
      std::vector<int32_t> blocks = cache.Match(names, tokens, 100);
      size_t expected = 0;
      while ((expected + 1) * kSize <= tokens.size() &&
             model.contains(Tokens(tokens.begin(), tokens.begin() + long((expected + 1) * kSize)))) {
        ++expected;
      }
      ASSERT_EQ(blocks.size(), expected);
      hits += blocks.size();
      for (size_t b = 0; b < blocks.size(); ++b) {
        ASSERT_EQ(blocks[b], model.at(Tokens(tokens.begin(), tokens.begin() + long((b + 1) * kSize))));
      }
      const int needed = int((tokens.size() + kSize - 1) / kSize) - int(blocks.size());
      const auto fresh = cache.Allocate(needed);
      follow();
      if (!fresh.has_value()) {
        for (auto it = blocks.rbegin(); it != blocks.rend(); ++it) cache.Unref(*it);
        continue;
      }
      const size_t first = blocks.size();
      blocks.insert(blocks.end(), fresh->begin(), fresh->end());
      for (const int32_t b : blocks) ++held[size_t(b)];
      for (size_t b = 0; (b + 1) * kSize <= tokens.size(); ++b) {
        const Tokens part(tokens.begin() + long(b * kSize), tokens.begin() + long((b + 1) * kSize));
        if (b >= first) {
          const Tokens prefix(tokens.begin(), tokens.begin() + long((b + 1) * kSize));
          model.emplace(prefix, blocks[b]);
          cache.Store(blocks[b], names[b], b == 0 ? root : names[b - 1], part);
          name_of[names[b]] = prefix;
        }
      }
      holders.push_back(std::move(blocks));
    }
    follow();
    int used = 0;
    for (int b = 0; b < kBlocks; ++b) used += held[size_t(b)] > 0;
    ASSERT_EQ(cache.free(), kBlocks - used);
    ASSERT_EQ(cache.stored(), int(model.size()));
  }
  EXPECT_GT(hits, 1000u);
  EXPECT_GT(evictions, 1000u);
  for (auto& h : holders) {
    for (auto it = h.rbegin(); it != h.rend(); ++it) cache.Unref(*it);
  }
  EXPECT_EQ(cache.free(), kBlocks);
  cache.Clear();
  EXPECT_EQ(pool.free(), kBlocks);
}

}  // namespace
}  // namespace sluice::engine
