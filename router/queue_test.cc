#include "router/queue.h"

#include <gtest/gtest.h>

namespace sluice::router {
namespace {

const absl::Time kStart = absl::UnixEpoch();

TEST(QueueTest, OrdersByPriorityThenArrival) {
  Queue queue(10);
  ASSERT_TRUE(queue.Add(1, 0).ok());
  ASSERT_TRUE(queue.Add(2, 0).ok());
  ASSERT_TRUE(queue.Add(3, -1).ok());
  ASSERT_TRUE(queue.Add(4, 5).ok());
  std::vector<uint64_t> order;
  while (!queue.empty()) order.push_back(queue.TakeHead(kStart).call);
  EXPECT_EQ(order, (std::vector<uint64_t>{3, 1, 2, 4}));
}

TEST(QueueTest, RefusesBeyondTheLimitAndSaysWhenToComeBack) {
  Queue queue(2);
  ASSERT_TRUE(queue.Add(1, 0).ok());
  ASSERT_TRUE(queue.Add(2, 0).ok());
  const absl::Status refused = queue.Add(3, -100);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(queue.size(), 2);
  EXPECT_EQ(queue.RetryAfter(), absl::Seconds(2));  // the first guess is a second each
  EXPECT_TRUE(queue.Remove(1));
  EXPECT_TRUE(queue.Add(3, 0).ok());
}

TEST(QueueTest, WhatComesBackKeepsItsPlaceEvenWhenFull) {
  Queue queue(2);
  ASSERT_TRUE(queue.Add(1, 0).ok());
  ASSERT_TRUE(queue.Add(2, 0).ok());
  const Queue::Entry head = queue.TakeHead(kStart);
  EXPECT_EQ(head.call, 1u);
  ASSERT_TRUE(queue.Add(3, 0).ok());
  queue.PutBack(head.call, head.priority, head.arrival);
  EXPECT_EQ(queue.size(), 3);
  EXPECT_EQ(queue.Head().call, 1u);
}

TEST(QueueTest, RemoveIsExact) {
  Queue queue(4);
  ASSERT_TRUE(queue.Add(1, 0).ok());
  ASSERT_TRUE(queue.Add(2, 0).ok());
  EXPECT_TRUE(queue.Remove(1));
  EXPECT_FALSE(queue.Remove(1));
  EXPECT_EQ(queue.Head().call, 2u);
}

TEST(QueueTest, RetryAfterFollowsTheDrain) {
  Queue queue(1000);
  for (uint64_t call = 1; call <= 500; ++call) ASSERT_TRUE(queue.Add(call, 0).ok());
  absl::Time now = kStart;
  for (int i = 0; i < 400; ++i) queue.TakeHead(now += absl::Milliseconds(10));
  EXPECT_EQ(queue.size(), 100);
  EXPECT_GT(queue.RetryAfter(), absl::Milliseconds(900));  // 100 requests at 10 ms each
  EXPECT_LT(queue.RetryAfter(), absl::Milliseconds(1100));
}

}  // namespace
}  // namespace sluice::router
