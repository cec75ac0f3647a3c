#include "worker/outbox.h"

#include <string>

#include "gtest/gtest.h"

namespace sluice::worker {
namespace {

v1::WorkerMessage Step(int index, size_t payload = 0) {
  v1::WorkerMessage message;
  v1::WorkerEvent* event = message.add_events();
  event->mutable_key()->set_request_id(std::string(payload, 'x'));
  event->mutable_tokens()->set_first_index(index);
  message.mutable_report()->set_sequence(uint64_t(index) + 1);
  return message;
}

TEST(Outbox, MergesInOrderAndKeepsTheLastReport) {
  Outbox outbox(1 << 20, 1 << 20);
  v1::WorkerMessage hello;
  hello.mutable_hello()->set_worker_incarnation(9);
  ASSERT_TRUE(outbox.Push(hello));
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(outbox.Push(Step(i)));
  EXPECT_EQ(outbox.messages(), 1u);
  const auto merged = outbox.Pop();
  ASSERT_TRUE(merged);
  EXPECT_EQ(merged->hello().worker_incarnation(), 9u);
  ASSERT_EQ(merged->events_size(), 100);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(merged->events(i).tokens().first_index(), i);
  EXPECT_EQ(merged->report().sequence(), 100u);
  EXPECT_EQ(outbox.bytes(), 0u);
  EXPECT_FALSE(outbox.Pop());
}

TEST(Outbox, NoMessageGrowsOverTheMergeLimit) {
  Outbox outbox(1000, 1 << 20);
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(outbox.Push(Step(i, 90)));
  EXPECT_GT(outbox.messages(), 5u);
  int next = 0;
  while (const auto message = outbox.Pop()) {
    EXPECT_LE(message->ByteSizeLong(), 1000u);
    for (const v1::WorkerEvent& event : message->events()) EXPECT_EQ(event.tokens().first_index(), next++);
  }
  EXPECT_EQ(next, 100);
}

TEST(Outbox, ALargeMessageGoesAloneAndUnchanged) {
  Outbox outbox(100, 1 << 20);
  ASSERT_TRUE(outbox.Push(Step(0)));
  ASSERT_TRUE(outbox.Push(Step(1, 5000)));
  ASSERT_TRUE(outbox.Push(Step(2)));
  EXPECT_EQ(outbox.messages(), 3u);
}

TEST(Outbox, IsBounded) {
  Outbox outbox(1000, 10000);
  int pushed = 0;
  while (outbox.Push(Step(pushed, 90))) ++pushed;
  EXPECT_GT(pushed, 50);
  EXPECT_LE(outbox.bytes(), 10000u);
  outbox.Pop();
  EXPECT_TRUE(outbox.Push(Step(pushed, 90))) << "room again";
  outbox.Clear();
  EXPECT_TRUE(outbox.empty());
  EXPECT_EQ(outbox.bytes(), 0u);
}

}  // namespace
}  // namespace sluice::worker
