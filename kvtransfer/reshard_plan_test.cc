#include "kvtransfer/reshard_plan.h"

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <map>
#include <random>
#include <tuple>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice::kvtransfer {
namespace {

using testing::ElementsAre;

// Heads cut as engine/parallel/tensor_split does: as evenly as they go, or one head in several ranks.
KvShards CutHeads(int layers, int heads, int ranks) {
  KvShards shards;
  for (int rank = 0; rank < ranks; ++rank) {
    int begin = heads * rank / ranks, end = heads * (rank + 1) / ranks;
    if (ranks > heads) begin = rank * heads / ranks, end = begin + 1;
    shards.push_back({0, layers, begin, end});
  }
  return shards;
}

bool In(const KvShard& s, int layer, int head) {
  return s.layer_begin <= layer && layer < s.layer_end && s.head_begin <= head && head < s.head_end;
}

// Cell by cell: who needs it gets it once, from one who has it; nobody gets what it does not hold; no part is empty.
void ExpectEveryCellOnce(const KvShards& from, const KvShards& to, const std::vector<ReshardPart>& plan, int layers,
                         int heads) {
  for (const ReshardPart& part : plan) ASSERT_GT(part.cells.cells(), 0);
  for (int rank = 0; rank < int(to.size()); ++rank) {
    for (int layer = 0; layer < layers; ++layer) {
      for (int head = 0; head < heads; ++head) {
        int came = 0;
        for (const ReshardPart& part : plan) {
          if (part.to_rank != rank || !In(part.cells, layer, head)) continue;
          ++came;
          EXPECT_TRUE(In(from[size_t(part.from_rank)], layer, head)) << "sent by one that does not hold it";
        }
        ASSERT_EQ(came, In(to[size_t(rank)], layer, head) ? 1 : 0)
            << "rank " << rank << " layer " << layer << " head " << head;
      }
    }
  }
}

int64_t MostSent(const std::vector<ReshardPart>& plan) {
  std::map<int, int64_t> sent;
  int64_t most = 0;
  for (const ReshardPart& part : plan) most = std::max(most, sent[part.from_rank] += part.cells.cells());
  return most;
}

TEST(ReshardPlan, AnyRanksToAnyRanks) {
  for (const int heads : {1, 2, 3, 5, 8}) {
    for (int from = 1; from <= 8; ++from) {
      for (int to = 1; to <= 8; ++to) {
        SCOPED_TRACE(testing::Message() << heads << " heads, " << from << " to " << to);
        const KvShards a = CutHeads(3, heads, from), b = CutHeads(3, heads, to);
        const auto plan = PlanReshard(a, b);
        ASSERT_TRUE(plan.ok()) << plan.status();
        ExpectEveryCellOnce(a, b, *plan, 3, heads);
      }
    }
  }
}

TEST(ReshardPlan, TheDefaultModelFromTwoRanksToOneAndBack) {
  const KvShards one = CutHeads(30, 3, 1), two = CutHeads(30, 3, 2);
  EXPECT_THAT(*PlanReshard(two, one), ElementsAre(ReshardPart{0, 0, {0, 30, 0, 1}}, ReshardPart{1, 0, {0, 30, 1, 3}}));
  EXPECT_THAT(*PlanReshard(one, two), ElementsAre(ReshardPart{0, 0, {0, 30, 0, 1}}, ReshardPart{0, 1, {0, 30, 1, 3}}));
  EXPECT_THAT(PartsBetween(*PlanReshard(two, one), 1, 0), ElementsAre(KvShard{0, 30, 1, 3}));
  EXPECT_THAT(PartsBetween(*PlanReshard(two, one), 0, 1), ElementsAre());
}

TEST(ReshardPlan, ReplicasShareTheWork) {
  // A latent vector that four ranks hold goes to four: each sends one.
  const KvShards latent(4, KvShard{0, 6, 0, 1});
  const auto plan = PlanReshard(latent, latent);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(MostSent(*plan), 6);
  // One KV head in four ranks, to two.
  EXPECT_EQ(MostSent(*PlanReshard(CutHeads(6, 1, 4), CutHeads(6, 1, 2))), 6);
}

TEST(ReshardPlan, PipelinesOfLayersToo) {
  const KvShards stages = {{0, 5, 0, 4}, {5, 8, 0, 4}}, heads = CutHeads(8, 4, 3);
  for (const auto& [from, to] : {std::pair{stages, heads}, std::pair{heads, stages}}) {
    const auto plan = PlanReshard(from, to);
    ASSERT_TRUE(plan.ok());
    ExpectEveryCellOnce(from, to, *plan, 8, 4);
  }
}

TEST(ReshardPlan, NamesWhatNobodyHolds) {
  const auto plan = PlanReshard({{0, 4, 0, 2}}, {{0, 4, 1, 3}});
  EXPECT_EQ(plan.status().message(), "no sending rank holds head 2 of layer 0, which receiving rank 0 needs");
  EXPECT_FALSE(PlanReshard({}, {{0, 1, 0, 1}}).ok());
  EXPECT_TRUE(PlanReshard({}, {{}})->empty()) << "who holds nothing needs nothing";
}

// Random rectangles on both sides against the definition, cell by cell.
TEST(ReshardPlan, RandomShards) {
  const char* given = std::getenv("SLUICE_SEED");
  const uint64_t seed = given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device()();
  std::cout << "seed " << seed << std::endl;
  std::mt19937_64 rng(seed);
  const auto draw = [&rng](int low, int high) { return std::uniform_int_distribution<int>(low, high)(rng); };
  int planned = 0, refused = 0;
  for (int round = 0; round < 2000; ++round) {
    const int layers = draw(1, 6), heads = draw(1, 6);
    const auto shards = [&](int ranks) {
      KvShards all;
      for (int i = 0; i < ranks; ++i) {
        const int l = draw(0, layers), h = draw(0, heads);
        all.push_back({l, draw(l, layers), h, draw(h, heads)});
      }
      return all;
    };
    KvShards from = shards(draw(1, 4)), to = shards(draw(1, 4));
    if (draw(0, 1) == 1) from.push_back({0, layers, 0, heads});
    bool covered = true;
    for (const KvShard& want : to) {
      for (int l = want.layer_begin; l < want.layer_end; ++l) {
        for (int h = want.head_begin; h < want.head_end; ++h) {
          covered &= std::any_of(from.begin(), from.end(), [&](const KvShard& s) { return In(s, l, h); });
        }
      }
    }
    const auto plan = PlanReshard(from, to);
    ASSERT_EQ(plan.ok(), covered) << "round " << round;
    ++(covered ? planned : refused);
    if (covered) ExpectEveryCellOnce(from, to, *plan, layers, heads);
    if (HasFailure()) FAIL() << "round " << round;
  }
  EXPECT_GT(planned, 100);
  EXPECT_GT(refused, 100);
}

}  // namespace
}  // namespace sluice::kvtransfer
