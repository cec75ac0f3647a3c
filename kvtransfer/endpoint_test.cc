// A prefill and a decode endpoint against each other over real gRPC, in one process. SLUICE_TEST_CHANNEL names the
// channel, if it is not shared memory; over those between GPUs the pools lie in there.
#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/server_builder.h"
#include "gtest/gtest.h"
#include "kvtransfer/decode_endpoint.h"
#include "kvtransfer/fault_channel.h"
#include "kvtransfer/fingerprint.h"
#include "kvtransfer/prefill_endpoint.h"
#include "kvtransfer/testing/test_device.h"

namespace sluice::kvtransfer {
namespace {

constexpr absl::Duration kLong = absl::Seconds(30);  // only a broken test waits this long
const kernels::KvLayout kLayout{3, 2, 16, 4, kernels::KvDType::kBF16};
constexpr int kBlocks = 64;

std::string TestChannel() {
  const char* channel = std::getenv("SLUICE_TEST_CHANNEL");
  return channel == nullptr ? "" : channel;
}
bool OverTcp() {
  return TestChannel() == "tcp";
}
bool InDevices() {
  return TestChannel() == "cuda-ipc" || TestChannel() == "nccl";
}
// What the workers are given.
std::vector<std::string> Channels() {
  return InDevices() ? std::vector<std::string>{TestChannel(), "tcp"} : std::vector<std::string>{"shm", "tcp"};
}

// In host memory, or in the GPU of that number.
struct Pool {
  std::vector<std::vector<std::byte>> layers;
  std::unique_ptr<kernels::KvPool> in_device;
  std::vector<int32_t> all_blocks;

  Pool(uint64_t seed, int device) {
    std::mt19937_64 rng(seed);
    for (int i = 0; i < kLayout.num_layers; ++i) {
      layers.emplace_back(kLayout.block_bytes() * kBlocks);
      for (auto& b : layers.back()) b = seed == 0 ? std::byte(0) : std::byte(rng());
    }
    if (!InDevices()) return;
    for (int i = 0; i < kBlocks; ++i) all_blocks.push_back(i);
    in_device = NewTestPool(device, kLayout, kBlocks);
    for (int i = 0; i < kLayout.num_layers; ++i) {
      EXPECT_TRUE(
          in_device->device()->Scatter({i, i + 1, 0, kLayout.num_kv_heads, all_blocks}, layers[size_t(i)]).ok());
    }
  }
  PoolView view() {
    return {kLayout, 0, kBlocks, [this](int layer) { return layers[size_t(layer)].data(); },
            in_device == nullptr ? nullptr : in_device->device()};
  }
  // As it is now, where it lies in a GPU.
  void Read() {
    for (int i = 0; in_device != nullptr && i < kLayout.num_layers; ++i) {
      EXPECT_TRUE(in_device->device()->Gather({i, i + 1, 0, kLayout.num_kv_heads, all_blocks}, layers[size_t(i)]).ok());
    }
  }
  std::span<const std::byte> block(int layer, int id) const {
    return {layers[size_t(layer)].data() + size_t(id) * kLayout.block_bytes(), kLayout.block_bytes()};
  }
};

v1::Fingerprint Print(const std::string& model = "m") {
  v1::Fingerprint f;
  f.set_protocol_version(kTransferProtocolVersion);
  f.set_model_hash(model);
  f.set_numerics("f32.1");
  f.set_block_size(kLayout.block_size);
  return f;
}

// Collects ends and pair states; waits for them.
template <typename Key, typename Value>
class Board {
 public:
  void Put(const Key& key, Value value) {
    absl::MutexLock lock(&mutex_);
    EXPECT_TRUE(once_ == false || !values_.contains(key)) << "ended twice";
    values_[key] = std::move(value);
  }
  template <typename Pred>
  bool WaitUntil(const Key& key, Pred pred) {
    absl::MutexLock lock(&mutex_);
    const auto good = [&]()
                          ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return values_.contains(key) && pred(values_.at(key)); };
    return mutex_.AwaitWithTimeout(absl::Condition(&good), kLong);
  }
  bool Wait(const Key& key) {
    return WaitUntil(key, [](const Value&) { return true; });
  }
  Value Get(const Key& key) {
    EXPECT_TRUE(Wait(key)) << "nothing came";
    absl::MutexLock lock(&mutex_);
    return values_[key];
  }
  bool Has(const Key& key) {
    absl::MutexLock lock(&mutex_);
    return values_.contains(key);
  }
  explicit Board(bool once) : once_(once) {}

 private:
  const bool once_;
  absl::Mutex mutex_;
  std::map<Key, Value> values_;
};

class Decode {
 public:
  explicit Decode(uint64_t incarnation, int port = 0, v1::Fingerprint print = Print(), uint64_t pool_seed = 0,
                  std::vector<std::string> channels = Channels())
      : incarnation_(incarnation), pool(pool_seed, int(incarnation / 100 % 2) + 2) {
    DecodeEndpoint::Options options;
    options.incarnation = incarnation;
    options.fingerprint = std::move(print);
    options.host_id = OverTcp() ? "g" : "h";  // as if on another host
    options.kv = pool.view();
    options.receiver.max_piece_bytes = int64_t(kLayout.block_bytes()) * 4;
    options.receiver.progress_timeout = absl::Seconds(1);
    options.channels = std::move(channels);
    endpoint =
        std::make_unique<DecodeEndpoint>(options, [this](const Receiver::End& end) { ends.Put(end.lease_id, end); });
    grpc::ServerBuilder builder;
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    builder.AddListeningPort(absl::StrCat("127.0.0.1:", port), grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(&endpoint->service());
    server = builder.BuildAndStart();
    EXPECT_NE(server, nullptr);
  }
  ~Decode() { Stop(); }
  void Stop() {
    if (server == nullptr) return;
    server->Shutdown(absl::ToChronoTime(absl::Now()));
    server->Wait();
    server.reset();
    endpoint.reset();
  }
  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }
  int port() const { return port_; }

  const uint64_t incarnation_;
  int port_ = 0;
  Pool pool;
  Board<uint64_t, Receiver::End> ends{true};
  std::unique_ptr<DecodeEndpoint> endpoint;
  std::unique_ptr<grpc::Server> server;
};

class Prefill {
 public:
  explicit Prefill(
      uint64_t incarnation, FaultPlan plan = {}, v1::Fingerprint print = Print(),
      std::vector<std::string> channels = Channels(),
      const std::function<PoolView(PoolView)>& wrap_pool = [](PoolView view) { return view; })
      : pool(incarnation, int(incarnation % 2)) {
    faults->plan = std::move(plan);
    PrefillEndpoint::Options options;
    options.incarnation = incarnation;
    options.fingerprint = std::move(print);
    options.host_id = "h";
    options.kv = wrap_pool(pool.view());
    options.sender.progress_timeout = absl::Seconds(2);
    options.channels = std::move(channels);
    options.wrap_channel = [this](std::unique_ptr<SendChannel> c) { return WithFaults(std::move(c), faults); };
    endpoint = std::make_unique<PrefillEndpoint>(
        options,
        PrefillEndpoint::Callbacks{[this](TransferId id, const Sender::End& end) { ends.Put(id, end); },
                                   [this](TransferId id, int64_t bytes) { progress.Put(id, bytes); },
                                   [this](uint64_t d, PrefillEndpoint::PairState state, const absl::Status& s) {
                                     if (state == PrefillEndpoint::PairState::kUp) ups.Put(d, ++up_count);

                                     pairs.Put(d, {state, s});
                                   },
                                   [this](const std::vector<v1::KvFlow>& all) {
                                     for (const v1::KvFlow& flow : all) flows.Put(flow.peer_incarnation(), flow);
                                   }});
  }
  bool WaitUp(const Decode& d) {
    return pairs.WaitUntil(d.incarnation_, [](const auto& p) { return p.first == PrefillEndpoint::PairState::kUp; });
  }

  Pool pool;
  std::shared_ptr<FaultState> faults = std::make_shared<FaultState>();
  Board<TransferId, Sender::End> ends{true};
  Board<TransferId, int64_t> progress{false};
  Board<uint64_t, std::pair<PrefillEndpoint::PairState, absl::Status>> pairs{false};
  int up_count = 0;
  Board<uint64_t, int> ups{false};
  Board<uint64_t, v1::KvFlow> flows{false};
  std::unique_ptr<PrefillEndpoint> endpoint;
};

std::vector<int32_t> Blocks(int first, int count, int stride = 1) {
  std::vector<int32_t> blocks;
  for (int i = 0; i < count; ++i) blocks.push_back((first + i * stride) % kBlocks);
  return blocks;
}

void ExpectSame(Pool& from, std::span<const int32_t> from_blocks, Pool& to, std::span<const int32_t> to_blocks) {
  from.Read();
  to.Read();
  for (int layer = 0; layer < kLayout.num_layers; ++layer) {
    for (size_t i = 0; i < from_blocks.size(); ++i) {
      const auto a = from.block(layer, from_blocks[i]), b = to.block(layer, to_blocks[i]);
      ASSERT_TRUE(std::equal(a.begin(), a.end(), b.begin())) << "layer " << layer << " block " << i;
    }
  }
}

// One lease from start to end, the blocks coming in two chunks.
void Transfer(Prefill& p, Decode& d, uint64_t incarnation, uint64_t lease, const std::vector<int32_t>& from,
              const std::vector<int32_t>& to) {
  d.endpoint->Expect(lease, incarnation, {}, to);
  const TransferId id{d.incarnation_, lease};
  p.endpoint->Open(id, {}, from);
  const int half = int(from.size()) / 2;
  if (half > 0) p.endpoint->AddBlocks(id, 0, half);
  p.endpoint->AddBlocks(id, half, int(from.size()));
  v1::Commit commit;
  commit.set_computed_tokens(int(lease));
  p.endpoint->Commit(id, commit);
}

TEST(Endpoints, BytesArriveAndBothSidesHearOfIt) {
  Decode d(100);
  Prefill p(1);
  p.endpoint->SetPeers({{100, {d.address()}}});
  ASSERT_TRUE(p.WaitUp(d));
  const auto from = Blocks(3, 13, 5), to = Blocks(7, 13, 3);
  Transfer(p, d, 1, 42, from, to);
  EXPECT_TRUE(p.ends.Get({100, 42}).status.ok());
  const Receiver::End end = d.ends.Get(42);
  EXPECT_TRUE(end.status.ok());
  EXPECT_EQ(end.commit.computed_tokens(), 42);
  EXPECT_EQ(end.bytes, int64_t(13 * kLayout.block_bytes_all_layers()));
  EXPECT_EQ(p.progress.Get({100, 42}), end.bytes);
  EXPECT_GE(end.exposed, absl::ZeroDuration());
  EXPECT_LT(end.exposed, kLong);
  const std::string channel = TestChannel().empty() ? "shm" : TestChannel();
  EXPECT_TRUE(p.flows.WaitUntil(
      100, [&](const v1::KvFlow& flow) { return flow.channel() == channel && int64_t(flow.bytes()) == end.bytes; }))
      << "all of it went over " << channel;
  ExpectSame(p.pool, from, d.pool, to);
}

// Workers that have no way to move KV in common are refused, with the ways named.
TEST(Endpoints, NoChannelInCommonIsRefused) {
  Decode d(100, 0, Print(), 0, {"tcp"});
  Prefill p(1, {}, Print(), {"shm"});
  p.endpoint->SetPeers({{100, {d.address()}}});
  ASSERT_TRUE(
      p.pairs.WaitUntil(100, [](const auto& pair) { return pair.first == PrefillEndpoint::PairState::kRefused; }));
  EXPECT_NE(p.pairs.Get(100).second.message().find("offers shm; this worker takes tcp"), std::string::npos)
      << p.pairs.Get(100).second;
}

// Waits for its other end for ever, or till it is told to give up.
class LonelyPipe : public kernels::DevicePipe {
  bool ready() const override { return false; }
  void Queue(std::span<std::byte>) override {}
  absl::Status status() const override { return absl::DeadlineExceededError("nobody came"); }
};

// A pool whose device finds no way to others; lonely: over NCCL it only finds that out when it waits for them.
class Unreachable : public kernels::DeviceKv, private kernels::DeviceLinks {
 public:
  Unreachable(kernels::DeviceKv& real, bool lonely) : real_(real), lonely_(lonely) {}
  absl::StatusOr<uint64_t> Gather(const kernels::KvSlice& s, std::span<std::byte> out) override {
    return real_.Gather(s, out);
  }
  absl::StatusOr<uint64_t> Scatter(const kernels::KvSlice& s, std::span<const std::byte> in) override {
    return real_.Scatter(s, in);
  }
  absl::StatusOr<uint64_t> GatherOnDevice(const kernels::KvSlice& s, std::span<std::byte> out) override {
    return real_.GatherOnDevice(s, out);
  }
  absl::StatusOr<uint64_t> ScatterOnDevice(const kernels::KvSlice& s, std::span<const std::byte> in) override {
    return real_.ScatterOnDevice(s, in);
  }
  kernels::DeviceLinks* links() override { return this; }

 private:
  absl::Status Read(std::span<const std::byte> from, std::span<std::byte> to) override {
    return real_.links()->Read(from, to);
  }
  absl::Status Write(std::span<const std::byte> from, std::span<std::byte> to) override {
    return real_.links()->Write(from, to);
  }
  absl::StatusOr<std::unique_ptr<kernels::DeviceBuffer>> NewShared(size_t bytes) override {
    return real_.links()->NewShared(bytes);
  }
  absl::StatusOr<std::unique_ptr<kernels::DeviceBuffer>> OpenShared(std::string_view) override {
    return absl::FailedPreconditionError("no way");
  }
  std::string device_id() const override { return real_.links()->device_id(); }
  absl::Status pipes() override { return real_.links()->pipes(); }
  absl::StatusOr<std::string> NewPipeId() override { return real_.links()->NewPipeId(); }
  absl::StatusOr<std::unique_ptr<kernels::DevicePipe>> NewPipe(kernels::DevicePipeOptions) override {
    if (lonely_) return std::make_unique<LonelyPipe>();
    return absl::FailedPreconditionError("no way");
  }
  kernels::DeviceKv& real_;
  const bool lonely_;
};

// Two GPUs that can't reach each other fall back to what comes next.
TEST(Endpoints, AChannelThatTurnsOutNotToWorkIsLeft) {
  if (!InDevices()) GTEST_SKIP() << "between GPUs";
  for (const bool lonely : {false, true}) {
    Decode d(100);
    std::unique_ptr<Unreachable> device;
    Prefill p(1, {}, Print(), Channels(), [&](PoolView view) {
      device = std::make_unique<Unreachable>(*view.device, lonely);
      view.device = device.get();
      return view;
    });
    p.endpoint->SetPeers({{100, {d.address()}}});
    ASSERT_TRUE(p.WaitUp(d));
    Transfer(p, d, 1, 1, Blocks(0, 12), Blocks(0, 12));
    EXPECT_TRUE(d.ends.Get(1).status.ok());
    EXPECT_TRUE(p.flows.WaitUntil(100, [](const v1::KvFlow& flow) { return flow.channel() == "tcp"; }));
    ExpectSame(p.pool, Blocks(0, 12), d.pool, Blocks(0, 12));
    p.endpoint.reset();  // before the device
  }
}

TEST(Endpoints, ExposedTimeIsFromTheCommitToTheLastPiece) {
  Decode d(100);
  Prefill p(1);
  p.endpoint->SetPeers({{100, {d.address()}}});
  ASSERT_TRUE(p.WaitUp(d));
  v1::RequestKey key;
  key.set_request_id("r");
  const auto blocks = Blocks(3, 13, 5);
  const auto transfer = [&](uint64_t lease, bool pieces_first) {
    d.endpoint->Expect(lease, 1, key, blocks);
    p.endpoint->Open({100, lease}, key, blocks);
    p.endpoint->AddBlocks({100, lease}, 0, 13);
    const int64_t all = int64_t(13 * kLayout.block_bytes_all_layers());
    if (pieces_first) {
      EXPECT_TRUE(p.progress.WaitUntil({100, lease}, [&](int64_t bytes) { return bytes == all; }));
    }
    p.endpoint->Commit({100, lease}, {});
    return d.ends.Get(lease);
  };
  const Receiver::End before = transfer(1, true), after = transfer(2, false);
  EXPECT_TRUE(before.status.ok() && after.status.ok());
  EXPECT_EQ(before.exposed, absl::ZeroDuration()) << "everything was there before the Commit";
  EXPECT_GT(after.exposed, absl::ZeroDuration());
}

// A thread that stood still blames nobody: its clock stands still too, and no tick comes before what waited.
TEST(SerialThread, AStallIsLeftOutOfItsClock) {
  absl::Mutex mutex;
  std::vector<std::string> order;
  const auto add = [&](const char* what) {
    absl::MutexLock lock(&mutex);
    if (order.size() < 3) order.push_back(what);
  };
  bool stalled = false;
  SerialThread thread(absl::Milliseconds(10), [&](absl::Time) {
    if (stalled) add("tick");
  });
  const absl::Time real = absl::Now();
  const absl::Time before = thread.Now();
  absl::Notification standing;
  thread.Post([&] {
    stalled = true;
    add("stall");
    standing.Notify();
    absl::SleepFor(absl::Milliseconds(600));
  });
  standing.WaitForNotification();
  thread.Post([&] { add("waited"); });
  const auto three = [&]() { return order.size() == 3; };
  {
    absl::MutexLock lock(&mutex);
    ASSERT_TRUE(mutex.AwaitWithTimeout(absl::Condition(&three), kLong));
    EXPECT_EQ(order, (std::vector<std::string>{"stall", "waited", "tick"}));
  }
  const absl::Duration passed = thread.Now() - before;
  EXPECT_LE(passed, absl::Now() - real - absl::Milliseconds(500));
  thread.Stop();
}

TEST(Endpoints, TwoPrefillsAndTwoDecodesManyLeasesAtOnce) {
  Decode d1(100), d2(200);
  Prefill p1(1), p2(2);
  Prefill* const prefills[] = {&p1, &p2};
  Decode* const decodes[] = {&d1, &d2};
  for (Prefill* p : prefills) {
    p->endpoint->SetPeers({{100, {d1.address()}}, {200, {d2.address()}}});
    ASSERT_TRUE(p->WaitUp(d1) && p->WaitUp(d2));
  }
  // Each (prefill, decode) pair has leases with disjoint targets.
  struct Job {
    int p, d;
    uint64_t lease;
    std::vector<int32_t> from, to;
  };
  std::vector<Job> jobs;
  for (int round = 0; round < 4; ++round) {
    for (int p = 0; p < 2; ++p) {
      for (int d = 0; d < 2; ++d) {
        const int slot = p * 4 + round;
        jobs.push_back({p, d, uint64_t(1 + slot), Blocks(round * 9, 7), Blocks(slot * 8, 7)});
        const Job& j = jobs.back();
        Transfer(*prefills[p], *decodes[d], uint64_t(p + 1), j.lease, j.from, j.to);
      }
    }
  }
  for (const Job& j : jobs) {
    EXPECT_TRUE(decodes[j.d]->ends.Get(j.lease).status.ok());
    EXPECT_TRUE(prefills[j.p]->ends.Get({decodes[j.d]->incarnation_, j.lease}).status.ok());
    ExpectSame(prefills[j.p]->pool, j.from, decodes[j.d]->pool, j.to);
  }
}

TEST(Endpoints, CorruptPieceFailsThatLeaseAndNothingElse) {
  Decode d(100);
  Prefill p(1, {.corrupt = {1}});
  p.endpoint->SetPeers({{100, {d.address()}}});
  ASSERT_TRUE(p.WaitUp(d));
  Transfer(p, d, 1, 1, Blocks(0, 12), Blocks(0, 12));
  EXPECT_EQ(d.ends.Get(1).status.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(p.ends.Get({100, 1}).status.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(p.faults->injected, 1u);
  Transfer(p, d, 1, 2, Blocks(0, 12), Blocks(0, 12));
  EXPECT_TRUE(d.ends.Get(2).status.ok());
  ExpectSame(p.pool, Blocks(0, 12), d.pool, Blocks(0, 12));
}

// Lost or stalled bytes end in an abort of the pair, never in a commit; the next epoch works.
TEST(Endpoints, LostAndStalledBytesEndInAnErrorAndANewEpoch) {
  for (const bool stall : {false, true}) {
    Decode d(100);
    FaultPlan plan;
    (stall ? plan.stall : plan.lose) = {1};
    Prefill p(1, plan);
    p.endpoint->SetPeers({{100, {d.address()}}});
    ASSERT_TRUE(p.WaitUp(d));
    Transfer(p, d, 1, 1, Blocks(0, 12), Blocks(0, 12));
    EXPECT_FALSE(d.ends.Get(1).status.ok());
    EXPECT_FALSE(p.ends.Get({100, 1}).status.ok());
    EXPECT_GE(p.faults->injected, 1u);
    ASSERT_TRUE(p.ups.WaitUntil(100, [](int n) { return n >= 2; })) << "a new epoch";
    Transfer(p, d, 1, 2, Blocks(0, 12), Blocks(20, 12));
    EXPECT_TRUE(d.ends.Get(2).status.ok()) << d.ends.Get(2).status;
    ExpectSame(p.pool, Blocks(0, 12), d.pool, Blocks(20, 12));
  }
}

// Bytes that come long after their lease has ended and its blocks belong to another one: they go nowhere.
TEST(Endpoints, ALateWriteGoesNowhere) {
  FaultPlan plan;
  plan.delay = {1};
  Prefill p(1, plan);
  Decode d(100);
  p.endpoint->SetPeers({{100, {d.address()}}});
  ASSERT_TRUE(p.WaitUp(d));
  const auto from = Blocks(0, 24), to = Blocks(30, 24);
  d.endpoint->Expect(7, 1, {}, to);
  p.endpoint->Open({100, 7}, {}, from);
  p.endpoint->AddBlocks({100, 7}, 0, 24);
  while (p.faults->injected == 0) absl::SleepFor(absl::Milliseconds(1));
  d.endpoint->Forget(7, absl::CancelledError("client"));
  EXPECT_FALSE(d.ends.Get(7).status.ok());
  // The blocks are the next lease's at once.
  const auto other = Blocks(10, 24);
  Transfer(p, d, 1, 8, other, to);
  EXPECT_TRUE(d.ends.Get(8).status.ok()) << d.ends.Get(8).status;
  ExpectSame(p.pool, other, d.pool, to);
  EXPECT_FALSE(p.ends.Get({100, 7}).status.ok());
}

TEST(Endpoints, APieceThatIsSentTwiceEndsThePair) {
  FaultPlan plan;
  plan.duplicate = {0};
  Prefill p(1, plan);
  Decode d(100);
  p.endpoint->SetPeers({{100, {d.address()}}});
  ASSERT_TRUE(p.WaitUp(d));
  Transfer(p, d, 1, 7, Blocks(0, 5), Blocks(30, 5));
  EXPECT_FALSE(p.ends.Get({100, 7}).status.ok());
  EXPECT_FALSE(d.ends.Get(7).status.ok());
  EXPECT_EQ(p.faults->injected, 1u);
  ASSERT_TRUE(p.ups.WaitUntil(100, [](int n) { return n == 2; }));
  Transfer(p, d, 1, 8, Blocks(0, 5), Blocks(30, 5));
  EXPECT_TRUE(d.ends.Get(8).status.ok());
}

// Somebody who repeats the hello of a living prefill worker.
TEST(Endpoints, AStaleHelloIsRefusedAndChangesNothing) {
  Prefill p(1);
  Decode d(100);
  p.endpoint->SetPeers({{100, {d.address()}}});
  ASSERT_TRUE(p.WaitUp(d));
  Board<int, v1::ReceiverHello> answers{false};
  absl::Notification ended;
  const auto channel = grpc::CreateChannel(d.address(), grpc::InsecureChannelCredentials());
  const auto link = OpenLink(channel, {[&](v1::ReceiverMessage message) { answers.Put(0, message.hello()); },
                                       [&](const absl::Status&) { ended.Notify(); }});
  v1::SenderMessage message;
  message.set_epoch(1);
  v1::SenderHello& hello = *message.mutable_hello();
  hello.set_sender_incarnation(1);
  hello.set_receiver_incarnation(100);
  *hello.mutable_fingerprint() = Print();
  hello.set_sender_tp(1);
  hello.add_channels("tcp");
  v1::KvShard& shard = *hello.add_shards();
  shard.set_layer_end(kLayout.num_layers);
  shard.set_head_end(kLayout.num_kv_heads);
  link->Send(message);
  EXPECT_NE(answers.Get(0).refused().message().find("stale epoch 1"), std::string::npos);
  EXPECT_TRUE(ended.WaitForNotificationWithTimeout(kLong));
  Transfer(p, d, 1, 7, Blocks(0, 5), Blocks(30, 5));
  EXPECT_TRUE(d.ends.Get(7).status.ok()) << "the pair goes on";
  EXPECT_EQ(p.up_count, 1);
}

TEST(Endpoints, CancelAndForgetEndBothSides) {
  Decode d(100);
  Prefill p(1);
  p.endpoint->SetPeers({{100, {d.address()}}});
  ASSERT_TRUE(p.WaitUp(d));
  for (uint64_t lease : {1, 2}) {
    d.endpoint->Expect(lease, 1, {}, Blocks(0, 8));
    p.endpoint->Open({100, lease}, {}, Blocks(0, 8));
    p.endpoint->AddBlocks({100, lease}, 0, 4);
  }
  ASSERT_TRUE(p.progress.Wait({100, 2}));
  p.endpoint->Cancel({100, 1}, absl::CancelledError("client"));
  d.endpoint->Forget(2, absl::CancelledError("released"));
  EXPECT_EQ(d.ends.Get(1).status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(p.ends.Get({100, 1}).status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(d.ends.Get(2).status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(p.ends.Get({100, 2}).status.code(), absl::StatusCode::kCancelled);
}

TEST(Endpoints, NoPairMeansAnErrorAtOnce) {
  Decode d(100);
  Prefill p(1);
  d.endpoint->Expect(1, 1, {}, Blocks(0, 4));
  EXPECT_EQ(d.ends.Get(1).status.code(), absl::StatusCode::kUnavailable);
  p.endpoint->Open({100, 1}, {}, Blocks(0, 4));
  EXPECT_EQ(p.ends.Get({100, 1}).status.code(), absl::StatusCode::kUnavailable);
}

TEST(Endpoints, UnfitWorkersAreRefusedAtRegistration) {
  Decode d(100);
  Prefill p(1, {}, Print("another model"));
  p.endpoint->SetPeers({{100, {d.address()}}});
  ASSERT_TRUE(p.pairs.Wait(100));
  const auto [state, why] = p.pairs.Get(100);
  EXPECT_EQ(state, PrefillEndpoint::PairState::kRefused);
  EXPECT_NE(std::string(why.message()).find("model hash"), std::string::npos) << why;
}

// A decode worker that comes back on the same port is another incarnation: the old one's pair never serves it.
TEST(Endpoints, RestartOnTheSamePort) {
  auto d = std::make_unique<Decode>(100);
  const int port = d->port();
  Prefill p(1);
  p.endpoint->SetPeers({{100, {d->address()}}});
  ASSERT_TRUE(p.WaitUp(*d));
  d->endpoint->Expect(1, 1, {}, Blocks(0, 8));
  p.endpoint->Open({100, 1}, {}, Blocks(0, 8));
  p.endpoint->AddBlocks({100, 1}, 0, 4);
  ASSERT_TRUE(p.progress.Wait({100, 1}));
  d->Stop();
  EXPECT_FALSE(d->ends.Get(1).status.ok());
  EXPECT_FALSE(p.ends.Get({100, 1}).status.ok());
  d = std::make_unique<Decode>(101, port);
  EXPECT_TRUE(p.pairs.WaitUntil(100, [](const auto& s) { return s.first == PrefillEndpoint::PairState::kRefused; }))
      << "the address answers as another incarnation";
  p.endpoint->SetPeers({{101, {d->address()}}});
  ASSERT_TRUE(p.WaitUp(*d));
  Transfer(p, *d, 1, 1, Blocks(0, 8), Blocks(0, 8));
  EXPECT_TRUE(d->ends.Get(1).status.ok());
  ExpectSame(p.pool, Blocks(0, 8), d->pool, Blocks(0, 8));
}

// A prefill endpoint that goes away with transfers open: the decode side hears of it at once.
TEST(Endpoints, PrefillGoes) {
  Decode d(100);
  auto p = std::make_unique<Prefill>(1);
  p->endpoint->SetPeers({{100, {d.address()}}});
  ASSERT_TRUE(p->WaitUp(d));
  d.endpoint->Expect(1, 1, {}, Blocks(0, 8));
  p->endpoint->Open({100, 1}, {}, Blocks(0, 8));
  p->endpoint->AddBlocks({100, 1}, 0, 4);
  ASSERT_TRUE(p->progress.Wait({100, 1}));
  p->endpoint.reset();
  EXPECT_FALSE(p->ends.Get({100, 1}).status.ok());
  EXPECT_FALSE(d.ends.Get(1).status.ok());
}

TEST(FaultPlan, ParsesAndNamesWhatIsWrong) {
  const auto plan = ParseFaultPlan("corrupt=3,lose=7,corrupt=4");
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->corrupt, (std::set<uint64_t>{3, 4}));
  EXPECT_EQ(plan->lose, (std::set<uint64_t>{7}));
  EXPECT_EQ(ParseFaultPlan("delay=5,duplicate=6")->delay, (std::set<uint64_t>{5}));
  EXPECT_NE(ParseFaultPlan("bend=3").status().message().find("bend=3"), std::string::npos);
  EXPECT_FALSE(ParseFaultPlan("corrupt=x").ok());
}

}  // namespace

bool NoDevices() {
  return InDevices() && !HaveTestDevices();
}

}  // namespace sluice::kvtransfer

// Without the plugin there is no GPU to test with.
int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (sluice::kvtransfer::NoDevices()) {
    std::puts("SKIPPED: no CUDA plugin for tests");
    return 0;
  }
  return RUN_ALL_TESTS();
}
