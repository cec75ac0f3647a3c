#include "tests/host_cuda/engine/warp.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/host_cuda/testing/run.h"

namespace host_cuda {
namespace {

using testing::ForEveryOrder;
using ::testing::HasSubstr;
using testing::RunBlock;

constexpr uint32_t kAll = ~0u;

// c of shfl for segments of `width`: see __shfl_sync in the toolkit's headers.
uint32_t Segment(uint32_t width, bool up) {
  return (32 - width) << 8 | (up ? 0 : 31);
}

TEST(Shuffle, EveryModeWidthAndDistance) {
  ForEveryOrder(
      [] {
        for (const uint32_t width : {1u, 2u, 4u, 8u, 16u, 32u}) {
          for (const uint32_t distance : {0u, 1u, 3u, 7u, 16u, 31u}) {
            EXPECT_EQ(RunBlock(32,
                               [=] {
                                 const int lane = static_cast<int>(Self().lane), w = static_cast<int>(width);
                                 const int d = static_cast<int>(distance), first = lane / w * w;
                                 const uint32_t v = 100 + static_cast<uint32_t>(lane);
                                 auto expect = [&](uint32_t got, int source, bool inside) {
                                   EXPECT_EQ(got, static_cast<uint32_t>(100 + (inside ? source : lane)));
                                 };
                                 expect(Shuffle(ShuffleMode::kDown, v, distance, Segment(width, false), kAll), lane + d,
                                        lane + d < first + w);
                                 expect(Shuffle(ShuffleMode::kUp, v, distance, Segment(width, true), kAll), lane - d,
                                        lane - d >= first);
                                 expect(Shuffle(ShuffleMode::kButterfly, v, distance, Segment(width, false), kAll),
                                        lane ^ d, (lane ^ d) < first + w);
                                 expect(Shuffle(ShuffleMode::kIndex, v, distance, Segment(width, false), kAll),
                                        first + d % w, true);
                               }),
                      "");
          }
        }
      },
      3);
}

TEST(Shuffle, PartOfAWarpWhileTheOtherPartDoesSomethingElse) {
  ForEveryOrder([] {
    EXPECT_EQ(RunBlock(64,
                       [] {
                         const uint32_t lane = Self().lane;
                         if (lane % 2 == 0) {
                           for (uint32_t i = 0; i < 32; i += 2) {
                             EXPECT_EQ(Shuffle(ShuffleMode::kIndex, lane, i, 31, 0x55555555), i);
                           }
                         } else {
                           EXPECT_EQ(Reduce(Reduction::kAdd, lane, 0xaaaaaaaa), 256u);
                         }
                         EXPECT_TRUE(VoteAll(true, kAll));
                       }),
              "");
  });
}

TEST(Shuffle, ReadingOutsideTheMaskIsReported) {
  const std::string error = RunBlock(32, [] {
    if (Self().lane < 16) Shuffle(ShuffleMode::kButterfly, 1, 16, 31, 0xffff);
  });
  EXPECT_THAT(error, HasSubstr("which is not in mask 0000ffff"));
  EXPECT_THAT(error, HasSubstr("warp_test.cc:"));
  EXPECT_THAT(error, HasSubstr("kernel test_kernel, block (0,0,0), thread ("));
}

TEST(Shuffle, HalfAWarpWithAFullMaskIsReported) {
  EXPECT_THAT(RunBlock(32,
                       [] {
                         if (Self().lane & 1) {
                           Shuffle(ShuffleMode::kButterfly, 1, 1, 31, kAll);
                         } else {
                           SyncWarp(kAll);
                         }
                       }),
              HasSubstr("lanes of one warp meet in different operations"));
  EXPECT_THAT(RunBlock(32,
                       [] {
                         if (Self().lane & 1) SyncWarp(0x55555555);
                       }),
              HasSubstr("which does not name the lane"));
}

TEST(Vote, AgreesWithTheLanes) {
  ForEveryOrder([] {
    EXPECT_EQ(RunBlock(40,
                       [] {
                         const uint32_t linear = Self().linear, lane = Self().lane;
                         const uint32_t lanes = linear < 32 ? kAll : 0xffu;  // the last warp has eight
                         EXPECT_EQ(Ballot(lane % 3 == 0, kAll), 0x49249249u & lanes);
                         EXPECT_FALSE(VoteAll(lane != 5, kAll));
                         EXPECT_TRUE(VoteAll(true, kAll));
                         EXPECT_TRUE(VoteAny(lane == 5, kAll));
                         EXPECT_FALSE(VoteAny(false, kAll));
                         EXPECT_TRUE(VoteUniform(linear < 32, kAll));
                         EXPECT_FALSE(VoteUniform(lane < 3, kAll));
                         EXPECT_EQ(MatchAny(lane % 4, kAll), (0x11111111u << lane % 4) & lanes);
                         bool same = true;
                         EXPECT_EQ(MatchAll(lane, kAll, &same), 0u);
                         EXPECT_FALSE(same);
                         EXPECT_EQ(MatchAll(7, kAll, &same), lanes);
                         EXPECT_TRUE(same);
                       }),
              "");
  });
}

TEST(Reduce, EveryKind) {
  EXPECT_EQ(RunBlock(32,
                     [] {
                       const uint32_t lane = Self().lane, signed_value = lane - 16;
                       EXPECT_EQ(Reduce(Reduction::kAdd, signed_value, kAll), static_cast<uint32_t>(-16));
                       EXPECT_EQ(Reduce(Reduction::kMin, signed_value, kAll), 0u);
                       EXPECT_EQ(Reduce(Reduction::kMax, signed_value, kAll), ~0u);
                       EXPECT_EQ(Reduce(Reduction::kMinSigned, signed_value, kAll), static_cast<uint32_t>(-16));
                       EXPECT_EQ(Reduce(Reduction::kMaxSigned, signed_value, kAll), 15u);
                       EXPECT_EQ(Reduce(Reduction::kAnd, ~(1u << lane), kAll), 0u);
                       EXPECT_EQ(Reduce(Reduction::kOr, 1u << lane, kAll), kAll);
                       EXPECT_EQ(Reduce(Reduction::kXor, 1u << lane % 16, kAll), 0u);
                     }),
            "");
}

TEST(Warp, ExitedLanesDoNotCount) {
  ForEveryOrder([] {
    EXPECT_EQ(RunBlock(32,
                       [] {
                         if (Self().lane >= 20) return;
                         SyncWarp(kAll);
                         EXPECT_EQ(Ballot(true, kAll), 0xfffffu);
                       }),
              "");
  });
  EXPECT_THAT(RunBlock(32,
                       [] {
                         if (Self().lane == 31) return;
                         SyncWarp(kAll);
                         Shuffle(ShuffleMode::kIndex, 1, 31, 31, kAll);
                       }),
              HasSubstr("or has exited"));
}

}  // namespace
}  // namespace host_cuda
