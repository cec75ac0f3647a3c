#include "tests/host_cuda/engine/barrier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/host_cuda/engine/warp.h"
#include "tests/host_cuda/testing/run.h"

namespace host_cuda {
namespace {

using testing::ForEveryOrder;
using ::testing::HasSubstr;
using testing::RunBlock;

void Sync(Loc where = Loc::current()) {
  BlockBarrier(BarrierOp::kSync, 0, 0, false, where);
}

TEST(BlockBarrier, NobodyPassesBeforeAllCame) {
  for (const uint32_t threads : {1u, 31u, 32u, 33u, 100u, 256u, 1024u}) {
    ForEveryOrder(
        [=] {
          uint32_t came[3] = {};
          EXPECT_EQ(RunBlock(threads,
                             [&] {
                               for (uint32_t& n : came) {
                                 ++n;
                                 Sync();
                                 EXPECT_EQ(n, threads);
                               }
                             }),
                    "");
        },
        5);
  }
}

TEST(BlockBarrier, Reductions) {
  ForEveryOrder([] {
    EXPECT_EQ(RunBlock(70,
                       [] {
                         const uint32_t i = Self().linear;
                         EXPECT_EQ(BlockBarrier(BarrierOp::kPopc, 0, 0, i % 7 == 0), 10);
                         EXPECT_EQ(BlockBarrier(BarrierOp::kAnd, 0, 0, i != 69), 0);
                         EXPECT_EQ(BlockBarrier(BarrierOp::kAnd, 0, 0, true), 1);
                         EXPECT_EQ(BlockBarrier(BarrierOp::kOr, 0, 0, i == 69), 1);
                         EXPECT_EQ(BlockBarrier(BarrierOp::kOr, 0, 0, false), 0);
                       }),
              "");
  });
}

TEST(BlockBarrier, ProducersArriveConsumersWait) {
  ForEveryOrder([] {
    int data[4] = {}, produced = 0;
    EXPECT_EQ(RunBlock(96,
                       [&] {
                         const bool producer = Self().linear < 32;
                         for (int round = 0; round < 4; ++round) {
                           if (producer) {
                             if (Self().linear == 0) data[round] = ++produced;
                             SyncWarp(~0u);
                             BlockBarrier(BarrierOp::kArrive, 1 + round % 2, 96, false);
                             BlockBarrier(BarrierOp::kSync, 3, 96, false);
                           } else {
                             BlockBarrier(BarrierOp::kSync, 1 + round % 2, 96, false);
                             EXPECT_EQ(data[round], round + 1);
                             BlockBarrier(BarrierOp::kArrive, 3, 96, false);
                           }
                         }
                       }),
              "");
  });
}

// Greedy orders release by index, however the threads came: here warps 0 and 2 meet first, so that 1 comes before 0.
TEST(BlockBarrier, GreedyOrdersGoOnByIndex) {
  for (const Order order : {Order::kAscending, Order::kDescending}) {
    CurrentSettings().order = order;
    for (const bool detour : {false, true}) {
      std::vector<uint32_t> expected(96), ran;
      for (uint32_t i = 0; i < 96; ++i) expected[i] = order == Order::kAscending ? i : 95 - i;
      EXPECT_EQ(RunBlock(96,
                         [&] {
                           if (detour && Self().linear / 32 != 1) BlockBarrier(BarrierOp::kSync, 1, 64, false);
                           Sync();
                           ran.push_back(Self().linear);
                         }),
                "");
      EXPECT_EQ(ran, expected);
    }
  }
  CurrentSettings() = Settings();
}

TEST(BlockBarrier, OfSomeWarpsLeavesTheOthersAlone) {
  EXPECT_EQ(RunBlock(128,
                     [] {
                       if (Self().linear < 64) BlockBarrier(BarrierOp::kSync, 1, 64, false);
                       Sync();
                     }),
            "");
}

TEST(BlockBarrier, EarlyExitIsReported) {
  ForEveryOrder([] {
    const std::string error = RunBlock(128, [] {
      if (Self().linear < 40) Sync();
    });
    EXPECT_THAT(error, HasSubstr("divergent barrier"));
    EXPECT_THAT(error, HasSubstr("barrier_test.cc:"));
  });
}

TEST(BlockBarrier, EarlyExitCountsAsArrivedWhereAsked) {
  ForEveryOrder([] {
    CurrentSettings().strict_barriers = false;
    EXPECT_EQ(RunBlock(128,
                       [] {
                         if (Self().linear < 40) Sync();
                       }),
              "");
    CurrentSettings().strict_barriers = true;
  });
}

TEST(BlockBarrier, MisusesAreReported) {
  const std::string two_lines = RunBlock(64, [] {  // outside of the macro, which is a single line
    if (Self().linear < 32) {
      Sync();
    } else {
      Sync();
    }
  });
  EXPECT_THAT(two_lines, HasSubstr("divergent barrier: some threads of the block wait here"));
  EXPECT_THAT(RunBlock(64, [] { BlockBarrier(BarrierOp::kSync, 1, 33, false); }), HasSubstr("multiple of 32"));
  EXPECT_THAT(RunBlock(64, [] { BlockBarrier(BarrierOp::kSync, 16, 0, false); }), HasSubstr("there are 16"));
  EXPECT_THAT(RunBlock(64, [] { BlockBarrier(BarrierOp::kSync, 1, Self().linear < 32 ? 32 : 64, false); }),
              ::testing::AnyOf(HasSubstr("waits for"), HasSubstr("exited")));
  EXPECT_THAT(RunBlock(64,
                       [] {
                         if (Self().linear == 0) {
                           BlockBarrier(BarrierOp::kArrive, 1, 64, false);
                           BlockBarrier(BarrierOp::kArrive, 1, 64, false);
                         }
                       }),
              HasSubstr("arrives twice"));
}

TEST(BlockBarrier, DeadlockNamesTheWaiters) {
  const std::string error = RunBlock(64, [] {
    if (Self().linear < 32) BlockBarrier(BarrierOp::kSync, 1, 64, false);
    if (Self().linear >= 32) BlockBarrier(BarrierOp::kSync, 2, 64, false);
  });
  EXPECT_THAT(error, HasSubstr("deadlock"));
  EXPECT_THAT(error, HasSubstr("waits in a block barrier number 1 at"));
}

TEST(BlockBarrier, WhoHasBeenReleasedIsNotNamedAsWaiting) {
  CurrentSettings().order = Order::kAscending;
  const std::string error = RunBlock(64, [] {
    Sync();
    SyncWarp(~0u);
    if (Self().linear == 0) BlockBarrier(BarrierOp::kSync, 99, 0, false);  // the others have not run since
  });
  CurrentSettings() = Settings();
  EXPECT_THAT(error, HasSubstr("barrier 99"));
  EXPECT_THAT(error, ::testing::Not(HasSubstr("waits in")));
}

}  // namespace
}  // namespace host_cuda
