#include "kvtransfer/flow_book.h"

#include "gtest/gtest.h"

namespace sluice::kvtransfer {
namespace {

absl::Time At(double seconds) {
  return absl::UnixEpoch() + absl::Seconds(seconds);
}

TEST(FlowBook, AddsUpOverEpochs) {
  FlowBook book;
  book.Up({7, 0}, "shm");
  book.Update({7, 0}, {.bytes = 10, .pieces = 1}, true, At(1));
  book.Update({7, 0}, {.bytes = 30, .pieces = 3, .corrupt_pieces = 1}, false, At(3));
  book.Ended({7, 0}, true, absl::Milliseconds(250));
  book.Ended({7, 0}, false, absl::ZeroDuration());
  book.Down({7, 0}, At(4));
  book.Down({7, 0}, At(5));  // it is down already
  book.Up({7, 0}, "tcp");
  book.Update({7, 0}, {.bytes = 5, .pieces = 1, .void_pieces = 2, .stale_messages = 3}, true, At(6));
  book.Update({7, 0}, {.bytes = 6, .pieces = 2, .void_pieces = 2, .stale_messages = 3}, true, At(6.5));
  const v1::KvFlow flow = book.flows().at(0);
  EXPECT_EQ(flow.peer_incarnation(), 7u);
  EXPECT_EQ(flow.channel(), "tcp");
  EXPECT_EQ(flow.bytes(), 36u);
  EXPECT_EQ(flow.pieces(), 5u);
  EXPECT_EQ(flow.corrupt_pieces(), 1u);
  EXPECT_EQ(flow.void_pieces(), 2u);
  EXPECT_EQ(flow.stale_messages(), 3u);
  EXPECT_EQ(flow.transfers(), 1u);
  EXPECT_EQ(flow.failed_transfers(), 1u);
  EXPECT_EQ(flow.epochs(), 2u);
  EXPECT_EQ(flow.aborts(), 1u);
  EXPECT_DOUBLE_EQ(flow.busy_seconds(), 2.5);
  EXPECT_DOUBLE_EQ(flow.exposed_seconds(), 0.25);
}

TEST(FlowBook, SaysWhetherSomethingChanged) {
  FlowBook book;
  EXPECT_FALSE(book.TakeChanged());
  book.Up({1, 0}, "shm");
  EXPECT_TRUE(book.TakeChanged());
  book.Update({1, 0}, {}, false, At(1));
  EXPECT_FALSE(book.TakeChanged());
  book.Update({1, 0}, {.bytes = 1}, true, At(2));
  EXPECT_TRUE(book.TakeChanged());
}

TEST(FlowBook, ForgetsWhoHasBeenDownForLongestAndNobodyWhoIsUp) {
  FlowBook book;
  for (uint64_t peer = 1; peer <= FlowBook::kMostPeers; ++peer) book.Up({peer, 0}, "shm");
  book.Up({1000, 0}, "shm");
  EXPECT_EQ(book.flows().size(), FlowBook::kMostPeers + 1) << "all are up";
  book.Down({9, 0}, At(1));
  book.Down({5, 0}, At(2));
  book.Up({1001, 0}, "shm");
  EXPECT_EQ(book.flows().size(), FlowBook::kMostPeers);
  for (const v1::KvFlow& flow : book.flows()) {
    EXPECT_NE(flow.peer_incarnation(), 9u);
    EXPECT_NE(flow.peer_incarnation(), 5u);
  }
}

}  // namespace
}  // namespace sluice::kvtransfer
