#include "tests/host_cuda/nccl/launch_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace host_cuda::nccl {
namespace {

using testing::HasSubstr;

TEST(LaunchOrder, TheSameOrderAtBothEndsIsFineWhateverComesFirst) {
  LaunchOrder order;
  EXPECT_EQ(order.Add("peer", "A", true, true, {1, "a on A"}), "");
  EXPECT_EQ(order.Add("peer", "B", true, true, {2, "b on B"}), "");
  EXPECT_EQ(order.Add("peer", "B", true, false, {9, "b on B"}), "");  // its news comes in another order
  EXPECT_EQ(order.Add("peer", "A", true, false, {8, "a on A"}), "");
}

TEST(LaunchOrder, OppositeOrdersAreNamed) {
  LaunchOrder order;
  EXPECT_EQ(order.Add("peer", "A", true, true, {1, "a on A"}), "");
  EXPECT_EQ(order.Add("peer", "B", false, true, {2, "b on B"}), "");
  EXPECT_EQ(order.Add("peer", "B", false, false, {1, "b on B"}), "");
  EXPECT_THAT(order.Add("peer", "A", true, false, {2, "a on A"}),
              HasSubstr("this rank launches a on A, then b on B; its peer launches b on B, then a on A"));
}

TEST(LaunchOrder, OneCommunicatorHasItsOwnOrderAndOtherPeersDoNotMatter) {
  LaunchOrder order;
  EXPECT_EQ(order.Add("peer", "A", true, true, {1, "send"}), "");
  EXPECT_EQ(order.Add("peer", "A", false, true, {2, "receive"}), "");
  EXPECT_EQ(order.Add("peer", "A", true, false, {2, "receive"}), "");
  EXPECT_EQ(order.Add("peer", "A", false, false, {1, "send"}), "");
  EXPECT_EQ(order.Add("other", "B", true, true, {3, "b"}), "");
  EXPECT_EQ(order.Add("other", "B", true, false, {0, "b"}), "");
}

}  // namespace
}  // namespace host_cuda::nccl
