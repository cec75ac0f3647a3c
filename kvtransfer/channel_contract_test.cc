// What kvtransfer/channel.h promises, for the channels in host memory, and what each of them adds.
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <random>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "kvtransfer/channel.h"
#include "kvtransfer/loopback_channel.h"
#include "kvtransfer/shm_channel.h"
#include "kvtransfer/tcp_channel.h"
#include "kvtransfer/tcp_socket.h"
#include "kvtransfer/tcp_wire.h"
#include "kvtransfer/testing/channel_contract.h"

namespace sluice::kvtransfer {
namespace {

Ends NewLoopback(const ChannelLimits& limits, ArrivalCallback on_arrival) {
  LoopbackPair pair = NewLoopbackChannel(limits, std::move(on_arrival));
  return {std::move(pair.sender), std::move(pair.receiver)};
}

Ends NewShm(const ChannelLimits& limits, ArrivalCallback on_arrival) {
  auto receiver = NewShmReceiver(limits, std::move(on_arrival));
  EXPECT_TRUE(receiver.ok()) << receiver.status();
  auto sender = ConnectShmSender(receiver->endpoint, absl::Seconds(20));
  EXPECT_TRUE(sender.ok()) << sender.status();
  return {std::move(*sender), std::move(receiver->channel)};
}

Ends NewTcp(const ChannelLimits& limits, ArrivalCallback on_arrival) {
  auto receiver = NewTcpReceiver("127.0.0.1", limits, std::move(on_arrival));
  EXPECT_TRUE(receiver.ok()) << receiver.status();
  auto sender = ConnectTcpSender("127.0.0.1", receiver->endpoint, absl::Seconds(20));
  EXPECT_TRUE(sender.ok()) << sender.status();
  return {std::move(*sender), std::move(receiver->channel)};
}

INSTANTIATE_TEST_SUITE_P(All, ChannelContract,
                         testing::Values(Medium{"loopback", NewLoopback}, Medium{"shm", NewShm},
                                         Medium{"tcp", NewTcp, false}),
                         [](const auto& test) { return test.param.name; });

// A killed sender: what it sent before counts, then the receiver hears of it.
TEST(ShmChannel, PeerProcessDies) {
  Arrivals arrivals;
  auto receiver = NewShmReceiver({2, 1000}, arrivals.callback());
  ASSERT_TRUE(receiver.ok());
  ASSERT_TRUE(receiver->channel->PostReceive(0, 1000).ok());
  ASSERT_TRUE(receiver->channel->PostReceive(1, 1000).ok());
  const pid_t child = fork();
  if (child == 0) {
    auto sender = ConnectShmSender(receiver->endpoint, absl::Seconds(20));
    if (!sender.ok()) _exit(1);
    auto buffer = (*sender)->Buffer(0, 1000);
    if (!buffer.ok()) _exit(2);
    std::memset(buffer->data(), 42, buffer->size());
    if (!(*sender)->Send(0).ok()) _exit(3);
    kill(getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status)) << "the fault must have happened: exit " << WEXITSTATUS(status);
  EXPECT_EQ(arrivals.WaitFor(1).size(), 1u);
  auto view = receiver->channel->View(0);
  ASSERT_TRUE(view.ok());
  EXPECT_EQ((*view)[999], std::byte(42));
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  while (receiver->channel->status().ok() && absl::Now() < deadline) absl::SleepFor(absl::Milliseconds(1));
  EXPECT_EQ(receiver->channel->status().code(), absl::StatusCode::kUnavailable);
}

TEST(ShmChannel, StrayConnectionChangesNothing) {
  Arrivals arrivals;
  auto receiver = NewShmReceiver({2, 100}, arrivals.callback());
  ASSERT_TRUE(receiver.ok());
  std::string wrong_token = receiver->endpoint;
  wrong_token.back() ^= 1;
  EXPECT_FALSE(ConnectShmSender(wrong_token, absl::Seconds(20)).ok());
  auto sender = ConnectShmSender(receiver->endpoint, absl::Seconds(20));
  ASSERT_TRUE(sender.ok()) << sender.status();
  EXPECT_FALSE(ConnectShmSender(receiver->endpoint, absl::Seconds(1)).ok()) << "one sender only";
  ASSERT_TRUE(receiver->channel->PostReceive(0, 3).ok());
  ASSERT_TRUE((*sender)->Buffer(0, 3).ok());
  ASSERT_TRUE((*sender)->Send(0).ok());
  EXPECT_EQ(arrivals.WaitFor(1).size(), 1u);
}

TEST(ShmChannel, BadEndpointsAreRefused) {
  EXPECT_EQ(ConnectShmSender("", absl::Seconds(1)).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ConnectShmSender(std::string(48, 'x'), absl::Seconds(1)).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_FALSE(NewShmReceiver({0, 100}, [](uint64_t) {}).ok());
  EXPECT_FALSE(NewShmReceiver({65, 100}, [](uint64_t) {}).ok());
}

// Pieces that overtake each other on their connections are announced in order, whole.
TEST(TcpChannel, LargePiecesInOrder) {
  Arrivals arrivals;
  constexpr size_t kBytes = 3 << 20;
  Ends ends = NewTcp({8, kBytes}, arrivals.callback());
  uint64_t released = 0;
  for (uint64_t s = 0; s < 64; ++s) {
    if (s >= 8) {
      ASSERT_GT(arrivals.WaitFor(s - 7).size(), released);
      ExpectFilled(*ends.receiver, *ends.receiver->View(released), released);
      ends.receiver->Release(released++);
    }
    const size_t bytes = s % 2 == 0 ? kBytes : 5;  // the small ones are there first
    ASSERT_TRUE(ends.receiver->PostReceive(s, bytes).ok());
    auto buffer = ends.sender->Buffer(s, bytes);
    ASSERT_TRUE(buffer.ok());
    Fill(*ends.sender, *buffer, s);
    ASSERT_TRUE(ends.sender->Send(s).ok());
  }
  const std::vector<uint64_t> seen = arrivals.WaitFor(64);
  ASSERT_EQ(seen.size(), 64u);
  EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
}

int PortOf(const std::string& endpoint) {
  return int(uint8_t(endpoint[0])) << 8 | int(uint8_t(endpoint[1]));
}

// Silent, wrong and late connections, before the sender and after it, change nothing.
TEST(TcpChannel, StrayConnectionsChangeNothing) {
  Arrivals arrivals;
  auto receiver = NewTcpReceiver("127.0.0.1", {2, 100}, arrivals.callback());
  ASSERT_TRUE(receiver.ok());
  const absl::Time soon = absl::Now() + absl::Seconds(20);
  std::vector<Fd> silent;
  for (int i = 0; i < 5; ++i) silent.push_back(*ConnectTcp("127.0.0.1", PortOf(receiver->endpoint), soon));
  const std::string garbage(200, 'x');
  for (int i = 0; i < 5; ++i) {
    Fd stray = *ConnectTcp("127.0.0.1", PortOf(receiver->endpoint), soon);
    (void)SendAll(stray.get(), garbage.data(), garbage.size(), soon);
  }
  std::string wrong_token = receiver->endpoint;
  wrong_token.back() ^= 1;
  EXPECT_FALSE(ConnectTcpSender("127.0.0.1", wrong_token, absl::Seconds(20)).ok());
  auto sender = ConnectTcpSender("127.0.0.1", receiver->endpoint, absl::Seconds(20));
  ASSERT_TRUE(sender.ok()) << sender.status();
  EXPECT_FALSE(ConnectTcpSender("127.0.0.1", receiver->endpoint, absl::Seconds(2)).ok()) << "one sender only";
  ASSERT_TRUE(receiver->channel->PostReceive(0, 3).ok());
  ASSERT_TRUE((*sender)->Buffer(0, 3).ok());
  ASSERT_TRUE((*sender)->Send(0).ok());
  EXPECT_EQ(arrivals.WaitFor(1).size(), 1u);
  EXPECT_TRUE(receiver->channel->status().ok());
}

// A peer with the token that breaks the rules: the channel fails, nothing is written anywhere.
TEST(TcpChannel, FramesThatWereNotGrantedFailTheChannel) {
  struct Frame {
    uint64_t sequence, bytes;
  };
  for (const Frame bad : {Frame{1, 10}, Frame{0, 11}, Frame{0, ~uint64_t{0}}, Frame{~uint64_t{0}, 10}}) {
    Arrivals arrivals;
    auto receiver = NewTcpReceiver("127.0.0.1", {2, 100}, arrivals.callback());
    ASSERT_TRUE(receiver.ok());
    ASSERT_TRUE(receiver->channel->PostReceive(0, 10).ok());
    const absl::Time soon = absl::Now() + absl::Seconds(20);
    Fd peer = *ConnectTcp("127.0.0.1", PortOf(receiver->endpoint), soon);
    const std::string hello = receiver->endpoint.substr(2) + std::string(1, '\0');
    ASSERT_TRUE(SendAll(peer.get(), hello.data(), hello.size(), soon).ok());
    char welcome = 0;
    ASSERT_TRUE(ReceiveAll(peer.get(), &welcome, 1, soon).ok());
    std::byte header[kTcpHeaderBytes];
    WriteFrameHeader(bad.sequence, bad.bytes, header);
    ASSERT_TRUE(SendAll(peer.get(), header, sizeof header, soon).ok());
    while (receiver->channel->status().ok() && absl::Now() < soon) absl::SleepFor(absl::Milliseconds(1));
    EXPECT_EQ(receiver->channel->status().code(), absl::StatusCode::kInternal) << bad.sequence << " " << bad.bytes;
  }
}

TEST(TcpChannel, BadEndpointsAreRefused) {
  EXPECT_EQ(ConnectTcpSender("127.0.0.1", "", absl::Seconds(1)).status().code(), absl::StatusCode::kInvalidArgument);
  std::string nobody = std::string("\0\1", 2) + std::string(kTcpTokenBytes, 'x');
  EXPECT_EQ(ConnectTcpSender("127.0.0.1", nobody, absl::Seconds(1)).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_FALSE(NewTcpReceiver("127.0.0.1", {0, 100}, [](uint64_t) {}).ok());
  EXPECT_FALSE(NewTcpReceiver("no such host.", {1, 100}, [](uint64_t) {}).ok());
}

}  // namespace
}  // namespace sluice::kvtransfer
