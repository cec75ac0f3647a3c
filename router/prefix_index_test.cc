#include "router/prefix_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iostream>
#include <random>
#include <set>

#include "absl/strings/str_cat.h"

namespace sluice::router {
namespace {

using engine::BlockHash;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

BlockHash Name(uint64_t i) {
  return {i, i * 0x9E3779B97F4A7C15u};
}

std::vector<BlockHash> Names(std::vector<uint64_t> ids) {
  std::vector<BlockHash> names;
  for (uint64_t id : ids) names.push_back(Name(id));
  return names;
}

void Add(pb::PrefixEvents& events, pb::PrefixEvent::Kind kind, uint64_t sequence, std::vector<uint64_t> ids) {
  pb::PrefixEvent& event = *events.add_events();
  event.set_kind(kind);
  event.set_sequence(sequence);
  for (const BlockHash& name : Names(std::move(ids))) event.mutable_block_names()->append(name.Bytes());
}

pb::PrefixEvents Picture(uint64_t sequence, std::vector<uint64_t> ids) {
  pb::PrefixEvents events;
  Add(events, pb::PrefixEvent::CLEARED, sequence, {});
  Add(events, pb::PrefixEvent::STORED, 0, std::move(ids));
  return events;
}

pb::PrefixEvents Change(pb::PrefixEvent::Kind kind, uint64_t sequence, std::vector<uint64_t> ids) {
  pb::PrefixEvents events;
  Add(events, kind, sequence, std::move(ids));
  return events;
}

TEST(PrefixIndexTest, FindsLeadingBlocksOfEachWorker) {
  PrefixIndex index(100);
  ASSERT_TRUE(index.Apply(7, Picture(0, {1, 2, 3})));
  ASSERT_TRUE(index.Apply(8, Picture(0, {1, 3})));
  EXPECT_THAT(index.Match(Names({1, 2, 3, 4})), ElementsAre(Pair(7, 3), Pair(8, 1)));
  EXPECT_THAT(index.Match(Names({2})), ElementsAre(Pair(7, 1)));
  EXPECT_THAT(index.Match(Names({5, 1})), IsEmpty());
  EXPECT_THAT(index.Match({}), IsEmpty());
}

TEST(PrefixIndexTest, FollowsChangesByTheirNumbers) {
  PrefixIndex index(100);
  ASSERT_TRUE(index.Apply(7, Picture(10, {1})));
  EXPECT_TRUE(index.Apply(7, Change(pb::PrefixEvent::STORED, 11, {2, 3})));
  EXPECT_TRUE(index.Apply(7, Change(pb::PrefixEvent::REMOVED, 13, {3})));
  EXPECT_EQ(index.last_of(7), 13u);
  EXPECT_THAT(index.Match(Names({1, 2, 3})), ElementsAre(Pair(7, 2)));
  EXPECT_FALSE(index.Apply(7, Change(pb::PrefixEvent::STORED, 15, {4}))) << "14 is missing";
  EXPECT_THAT(index.Match(Names({1})), IsEmpty()) << "nothing is believed any more";
  EXPECT_FALSE(index.Apply(7, Change(pb::PrefixEvent::STORED, 16, {4})));
  EXPECT_TRUE(index.Apply(7, Picture(20, {1, 2})));
  EXPECT_TRUE(index.Apply(7, Change(pb::PrefixEvent::STORED, 21, {3})));
  EXPECT_THAT(index.Match(Names({1, 2, 3})), ElementsAre(Pair(7, 3)));
  EXPECT_EQ(index.entries(), 3u);
}

TEST(PrefixIndexTest, NonsenseIsAGap) {
  PrefixIndex index(100);
  ASSERT_TRUE(index.Apply(7, Picture(0, {1})));
  pb::PrefixEvents half = Change(pb::PrefixEvent::STORED, 1, {2});
  half.mutable_events(0)->mutable_block_names()->pop_back();
  EXPECT_FALSE(index.Apply(7, half));
  EXPECT_EQ(index.entries(), 0u);
  EXPECT_FALSE(index.Apply(9, Change(pb::PrefixEvent::STORED, 0, {2}))) << "a picture begins with CLEARED";
}

TEST(PrefixIndexTest, TheDeadAreForgottenAtOnce) {
  PrefixIndex index(100);
  index.Apply(7, Picture(0, {1, 2}));
  index.Apply(8, Picture(0, {1}));
  index.Promise(7, Names({1, 9}));
  index.Forget(7);
  EXPECT_THAT(index.Match(Names({1, 2})), ElementsAre(Pair(8, 1)));
  EXPECT_EQ(index.entries(), 1u);
  index.Release(7, Names({1, 9}));  // the request ends later
  index.Apply(9, Picture(0, {2}));  // may use its slot
  EXPECT_THAT(index.Match(Names({2})), ElementsAre(Pair(9, 1)));
}

TEST(PrefixIndexTest, PromisesCountUntilTheyAreTakenBack) {
  PrefixIndex index(100);
  index.Promise(7, Names({1, 2}));
  index.Promise(7, Names({1, 2, 3}));
  EXPECT_THAT(index.Match(Names({1, 2, 3})), ElementsAre(Pair(7, 3)));
  index.Release(7, Names({1, 2}));
  EXPECT_THAT(index.Match(Names({1, 2, 3})), ElementsAre(Pair(7, 3)));
  index.Apply(7, Picture(0, {1}));
  index.Release(7, Names({1, 2, 3}));
  EXPECT_THAT(index.Match(Names({1, 2, 3})), ElementsAre(Pair(7, 1)));
  EXPECT_EQ(index.entries(), 1u);
}

TEST(PrefixIndexTest, ItIsBounded) {
  PrefixIndex index(1000);
  std::mt19937_64 rng(1);
  index.Apply(7, Picture(0, {}));
  for (uint64_t i = 1; i <= 100000; ++i) {
    ASSERT_TRUE(index.Apply(7, Change(pb::PrefixEvent::STORED, i, {rng()})));
    index.Promise(8, Names({rng()}));
  }
  EXPECT_EQ(index.entries(), 1000u);
  EXPECT_EQ(index.left_out(), 199000u);
}

// Against sets, with everything that may happen.
TEST(PrefixIndexTest, RandomAgainstSets) {
  const uint64_t seed = std::random_device()();
  std::cout << "seed " << seed << "\n";
  std::mt19937_64 rng(seed);
  PrefixIndex index(1 << 20);
  struct Model {
    std::set<uint64_t> stored;
    std::multiset<uint64_t> promised;
    uint64_t last = 0;
    bool known = false;
  };
  std::map<uint64_t, Model> models;
  for (int step = 0; step < 200000; ++step) {
    const uint64_t worker = 1 + rng() % 5;
    Model& model = models[worker];
    const uint64_t id = rng() % 12;
    switch (rng() % 8) {
      case 0:
      case 1:
        if (!model.known) {
          model.stored = {id};
          model.last = rng() % 100;
          model.known = true;
          ASSERT_TRUE(index.Apply(worker, Picture(model.last, {id})));
        } else {
          ASSERT_TRUE(index.Apply(worker, Change(pb::PrefixEvent::STORED, ++model.last, {id})));
          model.stored.insert(id);
        }
        break;
      case 2:
        if (!model.known) break;
        ASSERT_TRUE(index.Apply(worker, Change(pb::PrefixEvent::REMOVED, ++model.last, {id})));
        model.stored.erase(id);
        break;
      case 3:
        index.Promise(worker, Names({id, id + 1}));
        model.promised.insert({id, id + 1});
        break;
      case 4:
        if (model.promised.empty()) break;
        index.Release(worker, Names({*model.promised.begin()}));
        model.promised.erase(model.promised.begin());
        break;
      case 5:
        if (rng() % 20 != 0) break;
        index.Forget(worker);
        model = Model();
        break;
      case 6:
        if (!model.known || rng() % 20 != 0) break;
        ASSERT_FALSE(index.Apply(worker, Change(pb::PrefixEvent::STORED, model.last + 2, {id})));
        model.stored.clear();
        model.known = false;
        break;
      default: {
        std::vector<uint64_t> asked;
        for (uint64_t i = id; i < 12; ++i) asked.push_back(i);
        const std::map<uint64_t, int> matches = index.Match(Names(asked));
        size_t entries = 0;
        for (const auto& [w, m] : models) {
          int hit = 0;
          while (hit < int(asked.size()) &&
                 (m.stored.contains(asked[size_t(hit)]) || m.promised.contains(asked[size_t(hit)]))) {
            ++hit;
          }
          ASSERT_EQ(matches.contains(w) ? matches.at(w) : 0, hit) << "worker " << w << " at step " << step;
          std::set<uint64_t> any = m.stored;
          any.insert(m.promised.begin(), m.promised.end());
          entries += any.size();
        }
        ASSERT_EQ(index.entries(), entries);
      }
    }
  }
}

}  // namespace
}  // namespace sluice::router
