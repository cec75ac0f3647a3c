// Instances of several ranks that share no memory: every rank of a prefill worker paired with every rank of a decode
// worker over real links and channels, for ranks 1 to 4 on either side and any number of KV heads.
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "grpcpp/server_builder.h"
#include "gtest/gtest.h"
#include "kvtransfer/decode_endpoint.h"
#include "kvtransfer/fault_channel.h"
#include "kvtransfer/fingerprint.h"
#include "kvtransfer/prefill_endpoint.h"

namespace sluice::kvtransfer {
namespace {

constexpr absl::Duration kLong = absl::Seconds(30);  // only a broken test waits this long
constexpr int kLayers = 3, kBlocks = 16, kSlots = 4, kDim = 8;
constexpr uint64_t kP = 10, kD = 20;

// As engine/parallel/tensor_split cuts KV heads.
KvShards CutHeads(int heads, int ranks) {
  KvShards shards;
  for (int rank = 0; rank < ranks; ++rank) {
    int begin = heads * rank / ranks, end = heads * (rank + 1) / ranks;
    if (ranks > heads) begin = rank * heads / ranks, end = begin + 1;
    shards.push_back({0, kLayers, begin, end});
  }
  return shards;
}

// What a rank keeps; its bytes tell block, layer, K or V, and head of the whole model.
struct Pool {
  kernels::KvLayout layout;
  int first_head;
  std::vector<std::vector<std::byte>> layers;

  explicit Pool(const KvShard& shard)
      : layout{kLayers, shard.head_end - shard.head_begin, kDim, kSlots, kernels::KvDType::kF32},
        first_head(shard.head_begin),
        layers(kLayers, std::vector<std::byte>(layout.block_bytes() * kBlocks)) {}
  PoolView view() {
    return {layout, first_head, kBlocks, [this](int layer) { return layers[size_t(layer)].data(); }};
  }
  static std::byte Expected(int block, int layer, int is_v, int head, size_t i) {
    return std::byte(block * 131 + layer * 31 + is_v * 17 + head * 7 + int(i % 113));
  }
  // Calls with (block, layer, is_v, head of the whole model, where it lies).
  template <typename Visit>
  void ForEach(Visit visit) {
    for (int layer = 0; layer < kLayers; ++layer) {
      for (int block = 0; block < kBlocks; ++block) {
        for (int is_v = 0; is_v < 2; ++is_v) {
          for (int h = 0; h < layout.num_kv_heads; ++h) {
            visit(block, layer, is_v, first_head + h, layers[size_t(layer)].data() + layout.offset(block, is_v, h, 0));
          }
        }
      }
    }
  }
};

template <typename Key, typename Value>
class Board {
 public:
  void Put(const Key& key, Value value) {
    absl::MutexLock lock(&mutex_);
    values_[key] = std::move(value);
    ++puts_[key];
  }
  Value Get(const Key& key) {
    absl::MutexLock lock(&mutex_);
    const auto has = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return values_.contains(key); };
    EXPECT_TRUE(mutex_.AwaitWithTimeout(absl::Condition(&has), kLong)) << "nothing came";
    EXPECT_LE(puts_[key], 1) << "ended twice";
    return values_[key];
  }
  bool WaitFor(const Key& key, const Value& value) {
    absl::MutexLock lock(&mutex_);
    const auto is = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return values_.contains(key) && values_[key] == value; };
    return mutex_.AwaitWithTimeout(absl::Condition(&is), kLong);
  }

 private:
  absl::Mutex mutex_;
  std::map<Key, Value> values_;
  std::map<Key, int> puts_;
};

v1::Fingerprint Print() {
  v1::Fingerprint f;
  f.set_protocol_version(kTransferProtocolVersion);
  f.set_block_size(kSlots);
  return f;
}

struct DecodeRank {
  DecodeRank(const KvShards& shards, int rank, uint64_t seed_byte) : pool(shards[size_t(rank)]) {
    for (auto& layer : pool.layers) std::fill(layer.begin(), layer.end(), std::byte(seed_byte));
    DecodeEndpoint::Options options;
    options.incarnation = kD;
    options.fingerprint = Print();
    options.key = ClusterKey("a key of the cluster");
    const char* channel = std::getenv("SLUICE_TEST_CHANNEL");
    options.host_id = channel != nullptr && std::string(channel) == "tcp" ? "other" : "host";
    options.kv = pool.view();
    options.rank = rank;
    options.shards = shards;
    options.receiver.max_piece_bytes = int64_t(pool.layout.block_bytes()) * 2;
    endpoint =
        std::make_unique<DecodeEndpoint>(options, [this](const Receiver::End& end) { ends.Put(end.lease_id, end); });
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&endpoint->service());
    server = builder.BuildAndStart();
  }
  ~DecodeRank() {
    server->Shutdown(absl::ToChronoTime(absl::Now()));
    server->Wait();
  }

  Pool pool;
  Board<uint64_t, Receiver::End> ends;
  std::unique_ptr<DecodeEndpoint> endpoint;
  int port = 0;
  std::unique_ptr<grpc::Server> server;
};

struct PrefillRank {
  PrefillRank(const KvShards& shards, int rank, FaultPlan plan) : pool(shards[size_t(rank)]) {
    pool.ForEach([this](int block, int layer, int is_v, int head, std::byte* at) {
      for (size_t i = 0; i < pool.layout.head_bytes(); ++i) at[i] = Pool::Expected(block, layer, is_v, head, i);
    });
    faults->plan = std::move(plan);
    PrefillEndpoint::Options options;
    options.incarnation = kP;
    options.fingerprint = Print();
    options.key = ClusterKey("a key of the cluster");
    options.host_id = "host";
    options.kv = pool.view();
    options.rank = rank;
    options.shards = shards;
    options.wrap_channel = [this](std::unique_ptr<SendChannel> c) { return WithFaults(std::move(c), faults); };
    endpoint = std::make_unique<PrefillEndpoint>(
        options,
        PrefillEndpoint::Callbacks{
            [this](TransferId id, const Sender::End& end) { ends.Put(id.lease_id, end); }, [](TransferId, int64_t) {},
            [this](uint64_t d, PrefillEndpoint::PairState state, const absl::Status&) { pairs.Put(d, state); },
            nullptr});
  }

  Pool pool;
  std::shared_ptr<FaultState> faults = std::make_shared<FaultState>();
  Board<uint64_t, Sender::End> ends;
  Board<uint64_t, PrefillEndpoint::PairState> pairs;
  std::unique_ptr<PrefillEndpoint> endpoint;
};

class Instances {
 public:
  Instances(int heads, int prefill_ranks, int decode_ranks, const std::map<int, FaultPlan>& faults = {}) {
    const KvShards from = CutHeads(heads, prefill_ranks), to = CutHeads(heads, decode_ranks);
    for (int r = 0; r < decode_ranks; ++r) d.push_back(std::make_unique<DecodeRank>(to, r, 0xee));
    std::vector<std::string> addresses;
    for (const auto& rank : d) addresses.push_back(absl::StrCat("127.0.0.1:", rank->port));
    for (int r = 0; r < prefill_ranks; ++r) {
      p.push_back(std::make_unique<PrefillRank>(from, r, faults.contains(r) ? faults.at(r) : FaultPlan()));
      p.back()->endpoint->SetPeers({{kD, addresses}});
    }
    for (const auto& rank : p) EXPECT_TRUE(rank->pairs.WaitFor(kD, PrefillEndpoint::PairState::kUp));
  }

  // D holds the first block already; the last comes layer by layer.
  void Transfer(uint64_t lease) {
    for (const auto& rank : d) rank->endpoint->Expect(lease, kP, {}, to_blocks, 1);
    for (const auto& rank : p) {
      const TransferId id{kD, lease};
      rank->endpoint->Open(id, {}, from_blocks);
      rank->endpoint->AddBlocks(id, 1, 4);
      for (int layer = 0; layer < kLayers; ++layer) rank->endpoint->AddBlocks(id, 4, 5, {layer, layer + 1});
      rank->endpoint->Commit(id, v1::Commit());
    }
  }

  const std::vector<int32_t> from_blocks = {3, 1, 15, 8, 2}, to_blocks = {9, 0, 4, 14, 7};
  std::vector<std::unique_ptr<DecodeRank>> d;
  std::vector<std::unique_ptr<PrefillRank>> p;
};

TEST(ReshardEndpoints, LandedBytesAreSentBytesForAnyRanksAndHeads) {
  for (const int heads : {1, 2, 3, 8}) {
    for (int prefill = 1; prefill <= 4; ++prefill) {
      for (int decode = 1; decode <= 4; ++decode) {
        SCOPED_TRACE(testing::Message() << heads << " heads, " << prefill << " ranks to " << decode);
        Instances instances(heads, prefill, decode);
        instances.Transfer(7);
        int64_t sent = 0, landed = 0, due = 0;
        for (const auto& rank : instances.p) {
          const Sender::End end = rank->ends.Get(7);
          EXPECT_TRUE(end.status.ok()) << end.status;
          sent += end.bytes_acked;
        }
        for (const auto& rank : instances.d) {
          const Receiver::End end = rank->ends.Get(7);
          EXPECT_TRUE(end.status.ok()) << end.status;
          landed += end.bytes;
          due += 4 * int64_t(rank->pool.layout.block_bytes_all_layers());
          int wrong = 0;
          rank->pool.ForEach([&](int block, int layer, int is_v, int head, const std::byte* at) {
            const auto& to = instances.to_blocks;
            const size_t place = size_t(std::find(to.begin(), to.end(), block) - to.begin());
            for (size_t i = 0; i < rank->pool.layout.head_bytes(); ++i) {
              const bool its = place >= 1 && place < to.size();
              wrong +=
                  at[i] != (its ? Pool::Expected(instances.from_blocks[place], layer, is_v, head, i) : std::byte(0xee));
            }
          });
          EXPECT_EQ(wrong, 0);
        }
        EXPECT_EQ(landed, sent);
        EXPECT_EQ(landed, due);
        if (HasFailure()) return;
      }
    }
  }
}

// One bad piece between one pair of ranks: the two hear of it, every rank's part ends (whether as a failure depends on
// what it had already: a side's ranks join their ends), and the next transfer is fine.
TEST(ReshardEndpoints, AFailureBetweenTwoRanksFailsTheTransfer) {
  for (int bad = 0; bad < 3; ++bad) {
    SCOPED_TRACE(testing::Message() << "rank " << bad);
    FaultPlan plan;
    plan.corrupt = {1};
    Instances instances(3, 3, 2, {{bad, plan}});
    instances.Transfer(7);
    EXPECT_TRUE(absl::IsDataLoss(instances.p[size_t(bad)]->ends.Get(7).status));
    int failed = 0;
    for (const auto& rank : instances.p) rank->ends.Get(7);
    for (const auto& rank : instances.d) failed += !rank->ends.Get(7).status.ok();
    EXPECT_GE(failed, 1);
    EXPECT_EQ(instances.p[size_t(bad)]->faults->injected, 1u);
    instances.Transfer(8);
    for (const auto& rank : instances.p) EXPECT_TRUE(rank->ends.Get(8).status.ok());
    for (const auto& rank : instances.d) EXPECT_TRUE(rank->ends.Get(8).status.ok());
  }
}

TEST(ReshardEndpoints, ALostRankEndsTheTransfersOfAll) {
  Instances instances(3, 2, 2);
  for (const auto& rank : instances.d) rank->endpoint->Expect(7, kP, {}, instances.to_blocks, 0);
  for (const auto& rank : instances.p) {
    rank->endpoint->Open({kD, 7}, {}, instances.from_blocks);
    rank->endpoint->AddBlocks({kD, 7}, 0, 2);
  }
  instances.p.pop_back();
  for (const auto& rank : instances.d) EXPECT_TRUE(absl::IsUnavailable(rank->ends.Get(7).status));
  EXPECT_FALSE(instances.p[0]->ends.Get(7).status.ok()) << "the decode ranks gave it up";
  // Without all ranks of the prefill worker there is no pair.
  for (const auto& rank : instances.d) {
    rank->endpoint->Expect(8, kP, {}, instances.to_blocks, 0);
    EXPECT_TRUE(absl::IsUnavailable(rank->ends.Get(8).status));
  }
}

}  // namespace
}  // namespace sluice::kvtransfer
