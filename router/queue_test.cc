#include "router/queue.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

namespace sluice::router {
namespace {

const absl::Time kStart = absl::UnixEpoch();

Queue::Entry One(uint64_t call, int priority = 0, const std::string& tenant = "", int64_t tokens = 1) {
  return {.ticket = {call, 0}, .priority = priority, .tenant = tenant, .tokens = tokens};
}

TEST(QueueTest, OrdersByPriorityThenArrival) {
  Queue queue({.limit = 10});
  ASSERT_TRUE(queue.Add(One(1, 0)).ok());
  ASSERT_TRUE(queue.Add(One(2, 0)).ok());
  ASSERT_TRUE(queue.Add(One(3, -1)).ok());
  ASSERT_TRUE(queue.Add(One(4, 5)).ok());
  std::vector<uint64_t> order;
  while (!queue.empty()) order.push_back(queue.TakeHead(kStart).ticket.call);
  EXPECT_EQ(order, (std::vector<uint64_t>{3, 1, 2, 4}));
}

TEST(QueueTest, RefusesBeyondTheLimitAndSaysWhenToComeBack) {
  Queue queue({.limit = 2});
  ASSERT_TRUE(queue.Add(One(1, 0)).ok());
  ASSERT_TRUE(queue.Add(One(2, 0)).ok());
  const absl::Status refused = queue.Add(One(3, -100));
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(queue.size(), 2);
  EXPECT_EQ(queue.RetryAfter(), absl::Seconds(2));  // the first guess is a second each
  EXPECT_TRUE(queue.Remove({1, 0}));
  EXPECT_TRUE(queue.Add(One(3, 0)).ok());
}

TEST(QueueTest, WhatComesBackKeepsItsPlaceEvenWhenFull) {
  Queue queue({.limit = 2});
  ASSERT_TRUE(queue.Add(One(1, 0)).ok());
  ASSERT_TRUE(queue.Add(One(2, 0)).ok());
  const Queue::Entry head = queue.TakeHead(kStart);
  EXPECT_EQ(head.ticket.call, 1u);
  ASSERT_TRUE(queue.Add(One(3, 0)).ok());
  queue.PutBack(head);
  EXPECT_EQ(queue.size(), 3);
  EXPECT_EQ(queue.Head().ticket.call, 1u);
}

TEST(QueueTest, RemoveIsExact) {
  Queue queue({.limit = 4});
  ASSERT_TRUE(queue.Add(One(1, 0)).ok());
  ASSERT_TRUE(queue.Add(One(2, 0)).ok());
  EXPECT_TRUE(queue.Remove({1, 0}));
  EXPECT_FALSE(queue.Remove({1, 0}));
  EXPECT_EQ(queue.Head().ticket.call, 2u);
}

TEST(QueueTest, RetryAfterFollowsTheDrain) {
  Queue queue({.limit = 1000});
  for (uint64_t call = 1; call <= 500; ++call) ASSERT_TRUE(queue.Add(One(call, 0)).ok());
  absl::Time now = kStart;
  for (int i = 0; i < 400; ++i) queue.TakeHead(now += absl::Milliseconds(10));
  EXPECT_EQ(queue.size(), 100);
  EXPECT_GT(queue.RetryAfter(), absl::Milliseconds(900));  // 100 requests at 10 ms each
  EXPECT_LT(queue.RetryAfter(), absl::Milliseconds(1100));
}

// Tokens that each tenant got of the first `taken`.
std::map<std::string, int64_t> Served(Queue& queue, int taken) {
  std::map<std::string, int64_t> served;
  for (int i = 0; i < taken; ++i) {
    const Queue::Entry entry = queue.TakeHead(kStart);
    served[entry.tenant] += entry.tokens;
  }
  return served;
}

TEST(QueueTest, TenantsShareByTokensHoweverManyRequestsTheySend) {
  Queue queue({.limit = 1000});
  for (uint64_t call = 1; call <= 300; ++call) ASSERT_TRUE(queue.Add(One(call, 0, "greedy", 100)).ok());
  for (uint64_t call = 301; call <= 310; ++call) ASSERT_TRUE(queue.Add(One(call, 0, "modest", 400)).ok());
  const auto served = Served(queue, 50);
  EXPECT_EQ(served.at("greedy"), served.at("modest")) << "40 x 100 and 10 x 400";
  EXPECT_EQ(Served(queue, 100).size(), 1u) << "who is alone gets all of it";
}

TEST(QueueTest, WeightsAreShares) {
  Queue queue({.limit = 1000, .weights = {{"gold", 3}}});
  for (uint64_t call = 1; call <= 100; ++call) {
    ASSERT_TRUE(queue.Add(One(call, 0, "gold")).ok());
    ASSERT_TRUE(queue.Add(One(call + 100, 0, "plain")).ok());
  }
  const auto served = Served(queue, 80);
  EXPECT_NEAR(double(served.at("gold")), 60, 1);
}

TEST(QueueTest, WhoWasAwayGetsNoCredit) {
  Queue queue({.limit = 1000});
  for (uint64_t call = 1; call <= 200; ++call) ASSERT_TRUE(queue.Add(One(call, 0, "busy")).ok());
  Served(queue, 100);
  for (uint64_t call = 301; call <= 400; ++call) ASSERT_TRUE(queue.Add(One(call, 0, "late")).ok());
  const auto served = Served(queue, 60);
  EXPECT_NEAR(double(served.at("late")), 30, 1);
}

TEST(QueueTest, CancelsCostTheirTenantNothing) {
  Queue queue({.limit = 1000});
  for (uint64_t call = 1; call <= 100; ++call) ASSERT_TRUE(queue.Add(One(call, 0, "a")).ok());
  for (uint64_t call = 101; call <= 200; ++call) ASSERT_TRUE(queue.Add(One(call, 0, "b")).ok());
  for (uint64_t call = 1; call <= 60; ++call) EXPECT_TRUE(queue.Remove({call, 0}));
  EXPECT_EQ(Served(queue, 80).at("a"), 40);
}

TEST(QueueTest, ARefusalGivesTheShareBack) {
  Queue queue({.limit = 1000});
  for (uint64_t call = 1; call <= 10; ++call) ASSERT_TRUE(queue.Add(One(call, 0, "a", 50)).ok());
  for (uint64_t call = 11; call <= 20; ++call) ASSERT_TRUE(queue.Add(One(call, 0, "b", 50)).ok());
  for (int i = 0; i < 5; ++i) queue.PutBack(queue.TakeHead(kStart));
  EXPECT_EQ(queue.Head().ticket.call, 1u);
  const auto served = Served(queue, 10);
  EXPECT_EQ(served.at("a"), served.at("b"));
}

TEST(QueueTest, ATenantsLimitNamesIt) {
  Queue queue({.limit = 100, .tenant_limit = 2});
  ASSERT_TRUE(queue.Add(One(1, 0, "a")).ok());
  ASSERT_TRUE(queue.Add(One(2, 1, "a")).ok());
  const absl::Status refused = queue.Add(One(3, 0, "a"));
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(refused.message().find("\"a\""), std::string::npos);
  EXPECT_TRUE(queue.Add(One(4, 0, "b")).ok());
  queue.TakeHead(kStart);
  EXPECT_TRUE(queue.Add(One(5, 0, "a")).ok());
}

TEST(QueueTest, TenantsThatWereServedAreForgotten) {
  Queue queue({.limit = 1000});
  for (uint64_t call = 1; call <= 100000; ++call) {
    ASSERT_TRUE(queue.Add(One(call, 0, std::to_string(call))).ok());
    if (call > 10) queue.TakeHead(kStart);
  }
  EXPECT_LT(queue.tenants(), 200);
}

TEST(QueueTest, LegsOfACallWaitSideBySide) {
  Queue queue({.limit = 1});
  ASSERT_TRUE(queue.Add(One(1)).ok());
  Queue::Entry entry = queue.TakeHead(kStart);
  for (int leg : {2, 0, 1}) {
    entry.ticket.leg = leg;
    queue.PutBack(entry);
  }
  EXPECT_TRUE(queue.Remove({1, 1}));
  EXPECT_EQ(queue.TakeHead(kStart).ticket.leg, 0);
  EXPECT_EQ(queue.TakeHead(kStart).ticket.leg, 2);
  EXPECT_TRUE(queue.empty());
}

}  // namespace
}  // namespace sluice::router
