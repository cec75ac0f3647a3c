// The channels between GPUs: the contract of channel.h, and what each of them adds. CUDA does not survive a fork, so
// other processes are this program anew, which finds in SLUICE_TEST_PEER what it is to do.
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "kvtransfer/cuda_ipc_channel.h"
#include "kvtransfer/device_rings.h"
#include "kvtransfer/nccl_channel.h"
#include "kvtransfer/shm_channel.h"
#include "kvtransfer/testing/channel_contract.h"
#include "kvtransfer/testing/test_device.h"

namespace sluice::kvtransfer {
namespace {

#define SLUICE_NEEDS_DEVICES() \
  if (!HaveTestDevices()) GTEST_SKIP() << "no CUDA plugin for tests"

constexpr kernels::KvLayout kLayout{
    .num_layers = 1, .num_kv_heads = 1, .head_dim = 16, .block_size = 4, .dtype = kernels::KvDType::kBF16};

constexpr ChannelLimits kLimits{4, 1000};

// The pool whose device's memory a channel ends in; as long as the process lives.
kernels::DeviceLinks& Links(int device) {
  static auto& pools = *new std::map<int, std::unique_ptr<kernels::KvPool>>;
  if (pools[device] == nullptr) pools[device] = NewTestPool(device, kLayout, 1);
  return *pools[device]->device()->links();
}

std::shared_ptr<DeviceRings> NewRings(int most = 8) {
  return std::make_shared<DeviceRings>(Links(1), most);
}

Ends NewCudaIpc(const ChannelLimits& limits, ArrivalCallback on_arrival) {
  auto receiver = NewCudaIpcReceiver(limits, NewRings(), std::move(on_arrival));
  EXPECT_TRUE(receiver.ok()) << receiver.status();
  auto sender = ConnectCudaIpcSender(receiver->endpoint, absl::Seconds(20), Links(0));
  EXPECT_TRUE(sender.ok()) << sender.status();
  return {std::move(*sender), std::move(receiver->channel)};
}

Ends NewNccl(const ChannelLimits& limits, ArrivalCallback on_arrival) {
  auto receiver = NewNcclReceiver("127.0.0.1", limits, NewRings(), std::move(on_arrival));
  EXPECT_TRUE(receiver.ok()) << receiver.status();
  auto sender = ConnectNcclSender("127.0.0.1", receiver->endpoint, absl::Seconds(20), limits,
                                  std::make_shared<DeviceRings>(Links(0), 1));
  EXPECT_TRUE(sender.ok()) << sender.status();
  while (!(*sender)->ready() && (*sender)->status().ok()) absl::SleepFor(absl::Milliseconds(1));
  EXPECT_TRUE((*sender)->ready()) << (*sender)->status();
  return {std::move(*sender), std::move(receiver->channel)};
}

// Without devices there is nothing to instantiate.
std::vector<Medium> Media() {
  if (!HaveTestDevices()) return {};
  return {{"CudaIpc", NewCudaIpc}, {"Nccl", NewNccl, false}};
}
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ChannelContract);
INSTANTIATE_TEST_SUITE_P(Devices, ChannelContract, testing::ValuesIn(Media()),
                         [](const auto& test) { return test.param.name; });

void AwaitFailure(const std::function<absl::Status()>& status) {
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  while (status().ok() && absl::Now() < deadline) absl::SleepFor(absl::Milliseconds(1));
  EXPECT_EQ(status().code(), absl::StatusCode::kUnavailable);
}

// Another process, at the other end of a socket. Messages keep their borders.
class Peer {
 public:
  explicit Peer(const char* what) {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
    fcntl(ends[0], F_SETFD, FD_CLOEXEC);
    std::vector<std::string> environment = {absl::StrCat("SLUICE_TEST_PEER=", what, ":", ends[1])};
    for (char** e = environ; *e != nullptr; ++e) environment.push_back(*e);
    std::vector<char*> pointers;
    for (std::string& e : environment) pointers.push_back(e.data());
    pointers.push_back(nullptr);
    char program[] = "/proc/self/exe";
    char* const arguments[] = {program, nullptr};
    EXPECT_EQ(posix_spawn(&child_, program, nullptr, nullptr, arguments, pointers.data()), 0);
    close(ends[1]);
    socket_ = ends[0];
  }
  ~Peer() {
    if (child_ > 0) kill(child_, SIGKILL);
    if (child_ > 0) (void)Wait();
    close(socket_);
  }
  void Tell(const std::string& bytes) { EXPECT_EQ(write(socket_, bytes.data(), bytes.size()), ssize_t(bytes.size())); }
  std::string Hear() {
    char bytes[1024];
    const ssize_t size = read(socket_, bytes, sizeof bytes);
    EXPECT_GT(size, 0) << "the other process has ended";
    return {bytes, size_t(std::max<ssize_t>(size, 0))};
  }
  int Wait() {
    int status = 0;
    EXPECT_GT(waitpid(std::exchange(child_, 0), &status, 0), 0);
    return status;
  }

 private:
  pid_t child_ = 0;
  int socket_ = -1;
};

bool SendOne(SendChannel& sender, uint64_t sequence, uint64_t seed, size_t bytes) {
  auto buffer = sender.Buffer(sequence, bytes);
  if (!buffer.ok()) return false;
  Fill(sender, *buffer, seed);
  return sender.Send(sequence).ok();
}

// In the other process.
void Say(int socket, const std::string& what) {
  if (write(socket, what.data(), what.size()) != ssize_t(what.size())) _exit(102);
}
std::string Hear(int socket) {
  char bytes[1024];
  const ssize_t size = read(socket, bytes, sizeof bytes);
  if (size <= 0) _exit(103);
  return {bytes, size_t(size)};
}
std::unique_ptr<SendChannel> Join(int socket) {
  auto sender = ConnectCudaIpcSender(Hear(socket), absl::Seconds(20), Links(0));
  if (!sender.ok()) _exit(101);
  return *std::move(sender);
}
std::unique_ptr<SendChannel> JoinNccl(int socket) {
  auto sender = ConnectNcclSender("127.0.0.1", Hear(socket), absl::Seconds(20), kLimits,
                                  std::make_shared<DeviceRings>(Links(0), 1));
  if (!sender.ok()) _exit(101);
  return *std::move(sender);
}

int KilledSender(int socket) {
  const auto sender = Join(socket);
  if (!SendOne(*sender, 0, 42, 1000)) return 1;
  Hear(socket);
  kill(getpid(), SIGKILL);
  return 2;
}

int LateSender(int socket) {
  const auto sender = Join(socket);
  auto buffer = sender->Buffer(0, 1000);
  if (!buffer.ok()) return 1;
  Say(socket, "b");
  Hear(socket);
  Fill(*sender, *buffer, 666);  // the other end is gone, and its memory the next one's, if it could be had
  Say(socket, "w");
  Hear(socket);
  return sender->Send(0).ok() ? 2 : 0;
}

// Dies in the phase that it is told.
int NcclSenderThatDies(int socket) {
  const std::string phase = Hear(socket);
  const auto sender = JoinNccl(socket);
  if (phase == "meeting") kill(getpid(), SIGKILL);
  while (!sender->ready()) absl::SleepFor(absl::Milliseconds(1));
  if (phase != "idle" && !SendOne(*sender, 0, 42, 1000)) return 1;
  Say(socket, "m");
  Hear(socket);
  if (phase == "gathering" && !sender->Buffer(1, 1000).ok()) return 2;
  if (phase == "sending" && !SendOne(*sender, 1, 43, 1000)) return 3;
  kill(getpid(), SIGKILL);
  return 4;
}

// Hears that the receiver's process is gone.
int NcclSenderThatStays(int socket) {
  const auto sender = JoinNccl(socket);
  while (!sender->ready()) absl::SleepFor(absl::Milliseconds(1));
  if (!SendOne(*sender, 0, 42, 1000)) return 1;
  AwaitFailure([&] { return sender->status(); });
  Say(socket, "f");
  return sender->Buffer(1, 10).ok() ? 2 : 0;
}

int DeadMaker(int socket) {
  const auto memory = Links(1).NewShared(100);
  if (!memory.ok()) return 1;
  Say(socket, (*memory)->handle());
  return 0;
}

int RunPeer(const std::string& what, int socket) {
  if (what == "killed") return KilledSender(socket);
  if (what == "late") return LateSender(socket);
  if (what == "dead") return DeadMaker(socket);
  if (what == "nccl dies") return NcclSenderThatDies(socket);
  if (what == "nccl stays") return NcclSenderThatStays(socket);
  return 104;
}

TEST(CudaIpcChannel, BetweenProcessesAndASenderThatIsKilled) {
  SLUICE_NEEDS_DEVICES();
  Peer process("killed");
  Arrivals arrivals;
  auto rings = NewRings();
  auto receiver = NewCudaIpcReceiver({2, 1000}, rings, arrivals.callback());
  ASSERT_TRUE(receiver.ok()) << receiver.status();
  ASSERT_TRUE(receiver->channel->PostReceive(0, 1000).ok());
  ASSERT_TRUE(receiver->channel->PostReceive(1, 1000).ok());
  process.Tell(receiver->endpoint);
  EXPECT_EQ(arrivals.WaitFor(1).size(), 1u);
  process.Tell("x");
  EXPECT_TRUE(WIFSIGNALED(process.Wait())) << "the fault must have happened";
  AwaitFailure([&] { return receiver->channel->status(); });
  const auto view = receiver->channel->View(0);
  ASSERT_TRUE(view.ok()) << "what was sent before it counts: " << view.status();
  ExpectFilled(*receiver->channel, *view, 42);
}

// A sender that was given up while it may still write: nobody gets its ring before it has closed its socket.
TEST(CudaIpcChannel, ALateWriteFindsNobodyElsesRing) {
  SLUICE_NEEDS_DEVICES();
  Peer process("late");
  Arrivals arrivals;
  auto rings = NewRings(2);
  auto receiver = NewCudaIpcReceiver({2, 1000}, rings, arrivals.callback());
  ASSERT_TRUE(receiver.ok());
  ASSERT_TRUE(receiver->channel->PostReceive(0, 1000).ok());
  process.Tell(receiver->endpoint);
  process.Hear();
  receiver->channel.reset();

  auto next = NewCudaIpcReceiver({2, 1000}, rings, arrivals.callback());
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_EQ(NewCudaIpcReceiver({2, 1000}, rings, arrivals.callback()).status().code(),
            absl::StatusCode::kResourceExhausted)
      << "the first ring is in quarantine";
  auto sender = ConnectCudaIpcSender(next->endpoint, absl::Seconds(20), Links(0));
  ASSERT_TRUE(sender.ok()) << sender.status();
  for (uint64_t s : {0, 1}) ASSERT_TRUE(next->channel->PostReceive(s, 1000).ok());
  for (uint64_t s : {0, 1}) ASSERT_TRUE(SendOne(**sender, s, s, 1000));
  process.Tell("x");
  process.Hear();
  EXPECT_EQ(arrivals.WaitFor(2).size(), 2u);
  for (uint64_t s : {0, 1}) ExpectFilled(*next->channel, *next->channel->View(s), s);
  EXPECT_FALSE(rings->Take(1000, absl::Now() + absl::Hours(1)).ok()) << "that process still lives, however long";
  process.Tell("x");
  EXPECT_EQ(process.Wait(), 0) << "its send is refused";
  const absl::Time gone = absl::Now();
  EXPECT_FALSE(rings->Take(1000, gone).ok()) << "its device comes to rest first";
  EXPECT_TRUE(rings->Take(1000, gone + DeviceRings::kSettle).ok());
}

TEST(CudaIpcChannel, RingsAreUsedAgain) {
  SLUICE_NEEDS_DEVICES();
  auto rings = NewRings(1);
  const std::byte* first = nullptr;
  for (int i = 0; i < 3; ++i) {  // nobody ever came: they are free at once
    Arrivals arrivals;
    auto receiver = NewCudaIpcReceiver({2, 1000}, rings, arrivals.callback());
    ASSERT_TRUE(receiver.ok()) << receiver.status();
    auto sender = i < 2 ? nullptr : *ConnectCudaIpcSender(receiver->endpoint, absl::Seconds(20), Links(0));
    if (sender == nullptr) continue;
    ASSERT_TRUE(receiver->channel->PostReceive(0, 10).ok());
    first = sender->Buffer(0, 10)->data();
  }
  EXPECT_FALSE(rings->Take(1, absl::Now()).ok());
  const auto again = rings->Take(1, absl::Now() + DeviceRings::kSettle);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(&(*again)->bytes().front() <= first && first <= &(*again)->bytes().back());
}

TEST(CudaIpcChannel, BadEndpointsAndPeersAreRefused) {
  SLUICE_NEEDS_DEVICES();
  Arrivals arrivals;
  EXPECT_EQ(ConnectCudaIpcSender("", absl::Seconds(1), Links(0)).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(NewCudaIpcReceiver({0, 100}, NewRings(), arrivals.callback()).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(NewCudaIpcReceiver({65, 100}, NewRings(), arrivals.callback()).status().code(),
            absl::StatusCode::kInvalidArgument);
  // The two kinds of shared channel are not each other's.
  auto host = NewShmReceiver({2, 100}, arrivals.callback());
  EXPECT_EQ(ConnectCudaIpcSender(host->endpoint, absl::Seconds(20), Links(0)).status().code(),
            absl::StatusCode::kInvalidArgument);
  auto device = NewCudaIpcReceiver({2, 100}, NewRings(), arrivals.callback());
  EXPECT_EQ(ConnectShmSender(device->endpoint, absl::Seconds(20)).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Links(0).OpenShared("no handle").status().code(), absl::StatusCode::kInvalidArgument);
}

// The process that made the memory is gone, so the pair can't work.
TEST(CudaIpcChannel, AHandleOfTheDeadIsRefused) {
  SLUICE_NEEDS_DEVICES();
  Peer process("dead");
  const std::string handle = process.Hear();
  ASSERT_EQ(process.Wait(), 0);
  const auto opened = Links(0).OpenShared(handle);
  EXPECT_EQ(opened.status().code(), absl::StatusCode::kFailedPrecondition) << opened.status();
}

TEST(NcclChannel, ASenderThatIsKilledInAnyPhase) {
  SLUICE_NEEDS_DEVICES();
  auto rings = NewRings(1);  // of all of them, one after the other
  for (const std::string phase : {"meeting", "idle", "gathering", "sending"}) {
    SCOPED_TRACE(phase);
    Peer process("nccl dies");
    Arrivals arrivals;
    auto receiver = NewNcclReceiver("127.0.0.1", kLimits, rings, arrivals.callback());
    ASSERT_TRUE(receiver.ok()) << receiver.status();
    for (uint64_t s : {0, 1, 2}) ASSERT_TRUE(receiver->channel->PostReceive(s, 1000).ok());
    process.Tell(phase);
    process.Tell(receiver->endpoint);
    if (phase != "meeting") {
      process.Hear();
      if (phase != "idle") {
        EXPECT_EQ(arrivals.WaitFor(1).size(), 1u);
        ExpectFilled(*receiver->channel, *receiver->channel->View(0), 42);
      }
      process.Tell("x");
    }
    EXPECT_TRUE(WIFSIGNALED(process.Wait())) << "the fault must have happened";
    AwaitFailure([&] { return receiver->channel->status(); });
    EXPECT_FALSE(receiver->channel->PostReceive(3, 10).ok());
  }
}

TEST(NcclChannel, AReceiverThatIsGone) {
  SLUICE_NEEDS_DEVICES();
  Peer process("nccl stays");
  Arrivals arrivals;
  auto receiver = NewNcclReceiver("127.0.0.1", kLimits, NewRings(), arrivals.callback());
  ASSERT_TRUE(receiver.ok()) << receiver.status();
  ASSERT_TRUE(receiver->channel->PostReceive(0, 1000).ok());
  process.Tell(receiver->endpoint);
  EXPECT_EQ(arrivals.WaitFor(1).size(), 1u);
  receiver->channel.reset();
  process.Hear();
  EXPECT_EQ(process.Wait(), 0);
}

TEST(NcclChannel, StrangersAndBadEndpointsChangeNothing) {
  SLUICE_NEEDS_DEVICES();
  Arrivals arrivals;
  auto sender_rings = std::make_shared<DeviceRings>(Links(0), 2);
  const auto connect = [&](const std::string& endpoint) {
    return ConnectNcclSender("127.0.0.1", endpoint, absl::Seconds(1), kLimits, sender_rings);
  };
  EXPECT_EQ(connect("").status().code(), absl::StatusCode::kInvalidArgument);
  auto receiver = NewNcclReceiver("127.0.0.1", kLimits, NewRings(), arrivals.callback());
  ASSERT_TRUE(receiver.ok());
  std::string wrong_token = receiver->endpoint;
  wrong_token[10] = char(wrong_token[10] ^ 1);
  EXPECT_FALSE(connect(wrong_token).ok());
  auto sender = connect(receiver->endpoint);
  ASSERT_TRUE(sender.ok()) << sender.status();
  EXPECT_FALSE(connect(receiver->endpoint).ok()) << "one sender only";
  ASSERT_TRUE(receiver->channel->PostReceive(0, 3).ok());
  ASSERT_TRUE(SendOne(**sender, 0, 1, 3)) << "before NCCL has met, it waits";
  EXPECT_EQ(arrivals.WaitFor(1).size(), 1u);
  ExpectFilled(*receiver->channel, *receiver->channel->View(0), 1);
}

TEST(NcclChannel, TheNumberOfPairsIsBounded) {
  SLUICE_NEEDS_DEVICES();
  Arrivals arrivals;
  auto rings = NewRings(1);
  auto first = NewNcclReceiver("127.0.0.1", kLimits, rings, arrivals.callback());
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(NewNcclReceiver("127.0.0.1", kLimits, rings, arrivals.callback()).status().code(),
            absl::StatusCode::kFailedPrecondition);
  first->channel.reset();
  EXPECT_TRUE(NewNcclReceiver("127.0.0.1", kLimits, rings, arrivals.callback()).ok());
}

// Ends of a pipe whose other end does nothing.
TEST(DevicePipe, EndsThatDoNotMeetAndBytesThatDoNotMove) {
  SLUICE_NEEDS_DEVICES();
  const auto await_end = [](kernels::DevicePipe& pipe) {
    const absl::Time deadline = absl::Now() + absl::Seconds(20);
    while (pipe.status().ok() && absl::Now() < deadline) absl::SleepFor(absl::Milliseconds(1));
    return pipe.status();
  };
  const auto options = [](const std::string& id, bool sends) {
    kernels::DevicePipeOptions o{.id = id, .sends = sends, .purpose = "KV"};
    o.meeting_timeout = absl::Milliseconds(300);
    o.progress_timeout = absl::Milliseconds(300);
    o.on_done = [](uint64_t) {};
    return o;
  };
  auto alone = Links(0).NewPipe(options(*Links(0).NewPipeId(), true));
  ASSERT_TRUE(alone.ok());
  EXPECT_EQ(await_end(**alone).code(), absl::StatusCode::kDeadlineExceeded) << (*alone)->status();
  EXPECT_FALSE((*alone)->ready());

  const std::string id = *Links(1).NewPipeId();
  kernels::DevicePipeOptions patient = options(id, true);
  patient.meeting_timeout = absl::Seconds(20);
  auto from = Links(0).NewPipe(patient);
  patient.sends = false;
  auto to = Links(1).NewPipe(patient);
  ASSERT_TRUE(from.ok() && to.ok());
  const auto memory = Links(1).NewShared(100);
  ASSERT_TRUE(memory.ok());
  (*to)->Queue((*memory)->bytes());
  const absl::Status stuck = await_end(**to);
  EXPECT_EQ(stuck.code(), absl::StatusCode::kDeadlineExceeded) << stuck;
  EXPECT_NE(std::string(stuck.message()).find("100 bytes are stuck"), std::string::npos) << stuck;
  EXPECT_EQ(Links(0).NewPipe(options("no id", true)).value()->ready(), false);
}

}  // namespace

int RunPeerProcess(const std::string& task) {
  const size_t colon = task.find(':');
  return RunPeer(task.substr(0, colon), std::atoi(task.c_str() + colon + 1));
}

}  // namespace sluice::kvtransfer

int main(int argc, char** argv) {
  if (const char* task = std::getenv("SLUICE_TEST_PEER")) return sluice::kvtransfer::RunPeerProcess(task);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
