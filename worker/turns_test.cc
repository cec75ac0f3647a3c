#include "worker/turns.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <random>

namespace sluice::worker {
namespace {

absl::Time At(int ms) {
  return absl::UnixEpoch() + absl::Milliseconds(ms);
}

TEST(Turns, OneRouterNeverWaitsForAnother) {
  Turns turns;
  EXPECT_TRUE(turns.Mine(1));
  turns.RefusedByLack(1, 3);
  EXPECT_TRUE(turns.Mine(1));
  EXPECT_EQ(turns.Tell(3, At(0)), 0u) << "it knows";
  EXPECT_EQ(turns.Tell(4, At(0)), 1u);
  EXPECT_EQ(turns.Tell(4, At(1)), 0u) << "once";
  turns.Used(1);
  EXPECT_EQ(turns.NextTimer(), absl::InfiniteFuture());
}

TEST(Turns, WhoWaitsLongestComesFirst) {
  Turns turns;
  turns.RefusedByLack(2, 0);
  EXPECT_FALSE(turns.Mine(1));
  turns.RefusedByTurn(1);
  EXPECT_EQ(turns.Tell(5, At(0)), 2u);
  turns.RefusedByLack(2, 5);  // it needs more: it stays at the front
  EXPECT_FALSE(turns.Mine(1));
  EXPECT_EQ(turns.NextTimer(), absl::InfiniteFuture());
  EXPECT_EQ(turns.Tell(3, At(1)), 0u);
  EXPECT_EQ(turns.Tell(4, At(2)), 2u) << "more than it knows of, though less than it has seen";
  turns.Used(2);
  EXPECT_TRUE(turns.Mine(1));
  EXPECT_FALSE(turns.Mine(2));
  EXPECT_EQ(turns.Tell(1, At(3)), 1u) << "who was refused by turn knows of nothing";
}

TEST(Turns, WhoDoesNotComeLosesTheTurnAndWhoEndsLeaves) {
  Turns turns;
  turns.RefusedByLack(1, 0);
  turns.RefusedByTurn(2);
  turns.RefusedByTurn(3);
  turns.Advance(At(100000));
  EXPECT_TRUE(turns.Mine(1)) << "it was not told yet";
  EXPECT_EQ(turns.Tell(1, At(0)), 1u);
  EXPECT_EQ(turns.NextTimer(), At(0) + kTurn);
  turns.Advance(At(0) + kTurn - absl::Nanoseconds(1));
  EXPECT_TRUE(turns.Mine(1));
  turns.Advance(At(0) + kTurn);
  EXPECT_TRUE(turns.Mine(2));
  turns.Ended(2);
  EXPECT_TRUE(turns.Mine(3));
  turns.Ended(3);
  EXPECT_TRUE(turns.Mine(1) && turns.Mine(2));
}

// Routers of different speed over one pool that is too small: each gets about as much as the others.
TEST(Turns, RoutersOfAnySpeedGetTheSame) {
  const uint64_t seed = std::random_device()();
  std::cout << "seed " << seed << "\n";
  std::mt19937_64 rng(seed);
  for (bool arbitrated : {true, false}) {
    Turns turns;
    int free = 4;
    std::map<StreamId, int> granted, running;
    for (int round = 0; round < 20000; ++round) {
      // One request ends, of whoever has one; then routers ask, the quicker ones mostly first.
      if (free == 0) {
        auto it = running.begin();
        std::advance(it, long(rng() % running.size()));
        if (--it->second == 0) running.erase(it);
        ++free;
      }
      const StreamId told = turns.Tell(free, At(round));
      std::vector<StreamId> order = {1, 2, 3};
      if (rng() % 10 == 0) std::shuffle(order.begin(), order.end(), rng);
      if (told != 0 && arbitrated) order.push_back(told);
      for (const StreamId stream : order) {
        if (arbitrated && !turns.Mine(stream)) {
          turns.RefusedByTurn(stream);
        } else if (free == 0) {
          turns.RefusedByLack(stream, 0);
        } else {
          --free;
          ++running[stream];
          ++granted[stream];
          turns.Used(stream);
        }
      }
    }
    const auto [least, most] = std::minmax({granted[1], granted[2], granted[3]});
    if (arbitrated) {
      EXPECT_GT(least, 0.95 * most);
    } else {
      EXPECT_LT(least, 0.3 * most) << "else this shows nothing";
    }
  }
}

}  // namespace
}  // namespace sluice::worker
