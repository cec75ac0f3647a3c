#include "kvtransfer/testing/channel_contract.h"

#include <algorithm>
#include <random>
#include <utility>

#include "absl/time/clock.h"

namespace sluice::kvtransfer {
namespace {

std::vector<std::byte> BytesOf(uint64_t seed, size_t size) {
  std::mt19937_64 rng(seed);
  std::vector<std::byte> bytes(size);
  for (auto& b : bytes) b = std::byte(rng());
  return bytes;
}

}  // namespace

void Fill(const SendChannel& sender, std::span<std::byte> buffer, uint64_t seed) {
  const std::vector<std::byte> bytes = BytesOf(seed, buffer.size());
  if (sender.device() == nullptr) {
    std::copy(bytes.begin(), bytes.end(), buffer.begin());
    return;
  }
  const absl::Status written = sender.device()->Write(bytes, buffer);
  ASSERT_TRUE(written.ok()) << written;
}

void ExpectFilled(const ReceiveChannel& receiver, std::span<const std::byte> view, uint64_t seed) {
  std::vector<std::byte> got(view.begin(), receiver.device() == nullptr ? view.end() : view.begin());
  if (receiver.device() != nullptr) {
    got.resize(view.size());
    const absl::Status read = receiver.device()->Read(view, got);
    ASSERT_TRUE(read.ok()) << read;
  }
  ASSERT_TRUE(got == BytesOf(seed, view.size())) << "piece " << seed;
}

TEST_P(ChannelContract, BytesArriveInOrderAndWhole) {
  Ends ends = Make();
  const size_t sizes[] = {1, 0, 999, 1000, 7, 64, 4, 1000, 13, 512};
  for (uint64_t s = 0; s < 10; ++s) {
    ASSERT_TRUE(ends.receiver->PostReceive(s, sizes[s]).ok());
    EXPECT_EQ(ends.receiver->View(s).status().code(), absl::StatusCode::kNotFound) << "nothing has arrived";
    auto buffer = ends.sender->Buffer(s, sizes[s]);
    ASSERT_TRUE(buffer.ok()) << buffer.status();
    ASSERT_EQ(buffer->size(), sizes[s]);
    Fill(*ends.sender, *buffer, s);
    ASSERT_TRUE(ends.sender->Send(s).ok());
    ASSERT_EQ(arrivals_.WaitFor(s + 1).size(), s + 1);
    EXPECT_EQ(arrivals_.WaitFor(s + 1).back(), s);
    auto view = ends.receiver->View(s);
    ASSERT_TRUE(view.ok()) << view.status();
    ASSERT_EQ(view->size(), sizes[s]);
    ExpectFilled(*ends.receiver, *view, s);
    ends.receiver->Release(s);
  }
}

// Buffers are released in any order; those still in use keep their bytes. Crosses the size of every ring inside.
TEST_P(ChannelContract, SlotsAreReusedInAnyOrder) {
  Ends ends = Make({3, 4096});
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 rng(seed);
  std::vector<std::pair<uint64_t, size_t>> held;
  for (uint64_t s = 0; s < 500; ++s) {
    while (held.size() == 3 || (!held.empty() && rng() % 3 == 0)) {
      const size_t i = rng() % held.size();
      auto view = ends.receiver->View(held[i].first);
      ASSERT_TRUE(view.ok());
      ASSERT_EQ(view->size(), held[i].second);
      ExpectFilled(*ends.receiver, *view, held[i].first);
      ends.receiver->Release(held[i].first);
      held.erase(held.begin() + long(i));
    }
    const size_t bytes = rng() % 4097;
    ASSERT_TRUE(ends.receiver->PostReceive(s, bytes).ok());
    auto buffer = ends.sender->Buffer(s, bytes);
    ASSERT_TRUE(buffer.ok()) << buffer.status();
    Fill(*ends.sender, *buffer, s);
    ASSERT_TRUE(ends.sender->Send(s).ok());
    ASSERT_EQ(arrivals_.WaitFor(s + 1).size(), s + 1);
    held.emplace_back(s, bytes);
  }
}

TEST_P(ChannelContract, RefusesWhatWasNotGranted) {
  Ends ends = Make({2, 100});
  EXPECT_FALSE(ends.receiver->PostReceive(1, 10).ok()) << "out of order";
  EXPECT_FALSE(ends.receiver->PostReceive(0, 101).ok()) << "too large";
  if (GetParam().sender_sees_posts) {
    EXPECT_FALSE(ends.sender->Buffer(0, 10).ok()) << "not posted";
  }
  ASSERT_TRUE(ends.receiver->PostReceive(0, 10).ok());
  ASSERT_TRUE(ends.receiver->PostReceive(1, 10).ok());
  EXPECT_FALSE(ends.receiver->PostReceive(2, 10).ok()) << "beyond the window";
  EXPECT_FALSE(ends.sender->Buffer(1, 10).ok()) << "out of order";
  EXPECT_FALSE(ends.sender->Send(1).ok()) << "out of order";
  EXPECT_TRUE(ends.sender->Buffer(0, 10).ok());
}

TEST_P(ChannelContract, ClosingEitherEndFailsTheOther) {
  for (const bool close_sender : {true, false}) {
    Ends ends = Make();
    ASSERT_TRUE(ends.receiver->PostReceive(0, 10).ok());
    if (close_sender) {
      ends.sender->Close();
    } else {
      ends.receiver.reset();
    }
    const absl::Time deadline = absl::Now() + absl::Seconds(20);
    const auto other = [&] { return close_sender ? ends.receiver->status() : ends.sender->status(); };
    while (other().ok() && absl::Now() < deadline) absl::SleepFor(absl::Milliseconds(1));
    EXPECT_EQ(other().code(), absl::StatusCode::kUnavailable);
    EXPECT_FALSE(ends.sender->Buffer(0, 10).ok());
    EXPECT_FALSE(ends.sender->Send(0).ok());
    if (close_sender) {
      EXPECT_FALSE(ends.receiver->PostReceive(1, 10).ok());
    }
  }
}

}  // namespace sluice::kvtransfer
