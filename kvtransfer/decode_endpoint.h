// All KV transfers of one decode rank: accepts the links of the ranks of prefill workers, grants, scatters, checks.
//
// One thread of its own runs the Receiver machines, the checksums and the copies. Calls from outside (the engine
// thread) only post; results come by callback on that thread.
//
// Promise: every expected lease ends exactly once through on_end, when it has ended with every rank of its prefill
// worker, with the first failure of any of them; nothing writes to its blocks after that. The owner must not free the
// blocks before. A rank sends what the reshard plan gives it and nothing else. A link of a stale epoch, of another
// decode incarnation or rank, of an unfit worker or of a stranger is refused and changes nothing.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "kvtransfer/channel.h"
#include "kvtransfer/device_rings.h"
#include "kvtransfer/flow_book.h"
#include "kvtransfer/link.h"
#include "kvtransfer/peer_rank.h"
#include "kvtransfer/piece_copy.h"
#include "kvtransfer/receiver.h"
#include "kvtransfer/reshard_plan.h"
#include "kvtransfer/serial_thread.h"
#include "proto/cluster_key.h"

namespace sluice::kvtransfer {

class DecodeEndpoint {
 public:
  struct Options {
    uint64_t incarnation = 0;
    v1::Fingerprint fingerprint;
    ClusterKey key;  // a prefill worker that does not have it is refused
    std::string host_id;
    std::string host = "127.0.0.1";  // to listen on for bytes over TCP
    // That may be used; "shm" and "cuda-ipc" only within a host, "cuda-ipc" and "nccl" only between pools in GPUs.
    std::vector<std::string> channels = {"shm", "tcp"};
    int most_rings = 64;  // pairs over "cuda-ipc", those included that ended a moment ago: their memory on the device
    int most_nccl = 16;   // pairs over "nccl": each may hold blocks of the GPU
    PoolView kv;
    int rank = 0;                // of this instance
    KvShards shards;             // what each of its ranks holds; empty: one rank, all that `kv` has
    Receiver::Options receiver;  // window and max_piece_bytes are also the channel's
    absl::Duration ping_interval = absl::Seconds(1);
    absl::Duration silence_limit = absl::Seconds(10);
  };

  // on_end.status is OK when everything that the Commit named has landed with the right checksum.
  using OnEnd = std::function<void(const Receiver::End&)>;

  // The numbers of all peers, after a change, at the pace of the endpoint's tick.
  using OnFlows = std::function<void(std::vector<v1::KvFlow>)>;

  DecodeEndpoint(Options options, OnEnd on_end, OnFlows on_flows = nullptr);
  ~DecodeEndpoint();  // ends all leases (on_end is called) and joins the thread

  // To be registered with the worker's gRPC server; must be shut down before the endpoint dies.
  LinkService& service() { return service_; }

  // blocks: the lease's block list, ids in the pool; those before `first_block` are here already and stay as they are.
  // Ends at once with UNAVAILABLE when that prefill worker has no pair.
  void Expect(uint64_t lease_id, uint64_t prefill_incarnation, v1::RequestKey key, std::vector<int32_t> blocks,
              int first_block = 0);

  // The lease is over (released, expired, cancelled); its end follows as soon as nothing writes to it.
  void Forget(uint64_t lease_id, absl::Status why);

 private:
  struct Pair {
    uint64_t id = 0;  // of the link
    uint64_t epoch = 0;
    int sender_tp = 1;
    std::vector<KvShard> parts;  // what that rank sends to this one
    std::shared_ptr<ReceiverLink> link;
    std::unique_ptr<Receiver> machine;
    std::unique_ptr<ReceiveChannel> channel;
    absl::Time last_heard, last_ping;
    int bad_channel_ticks = 0;
  };
  struct Lease {
    uint64_t prefill_incarnation = 0;
    std::vector<int32_t> blocks;
    std::set<int> open;                             // ranks of the prefill worker with which it has not ended
    Receiver::End end;                              // so far: the first failure, or a commit, and the bytes
    absl::Time committed = absl::InfiniteFuture();  // when the Commit was received
    absl::Time landed = absl::InfinitePast();       // when the last piece had
  };

  struct NewChannel {
    std::string name;
    std::unique_ptr<ReceiveChannel> channel;
    std::string endpoint;
  };
  bool MayUse(const std::string& channel, const v1::SenderHello& hello) const;
  std::vector<std::string> ChannelsFor(const v1::SenderHello& hello) const;
  absl::StatusOr<NewChannel> MakeChannel(const std::string& name, PeerRank peer, uint64_t epoch);
  absl::StatusOr<NewChannel> MakeFirstChannel(const v1::SenderMessage& message);
  void Refuse(uint64_t link_id, ReceiverLink& link, uint64_t epoch, const absl::Status& why);

  LinkHandler<v1::SenderMessage> Accept(std::shared_ptr<ReceiverLink> link);
  void OnMessage(uint64_t link_id, const std::shared_ptr<ReceiverLink>& link, const v1::SenderMessage& message,
                 absl::Time received, absl::Time heard);
  void OnLinkEnd(uint64_t link_id);
  void OnHello(uint64_t link_id, const std::shared_ptr<ReceiverLink>& link, const v1::SenderMessage& message);
  absl::Status CheckKey(const v1::SenderMessage& message) const;
  absl::Status CheckHello(const v1::SenderMessage& message) const;
  v1::ReceiverMessage MakeHello(const v1::SenderMessage& message, const std::string& channel,
                                std::string endpoint) const;
  void OnArrival(PeerRank peer, uint64_t epoch, uint64_t sequence);
  void Break(PeerRank peer, absl::Status why);  // by value: it may be the machine's
  std::vector<PeerRank> RanksOf(uint64_t prefill_incarnation) const;
  absl::StatusOr<int64_t> SizeOf(const v1::Piece& piece, PeerRank peer, int num_blocks, int first_block) const;
  // The lease's pairs with which it has not ended.
  void AtOpenPairs(uint64_t lease_id, const std::function<void(PeerRank, Receiver&)>& call);
  void CarryOut(PeerRank peer, Pair& pair);
  void Scatter(Pair& pair, const Receiver::Scatter& scatter);
  absl::Status Land(Pair& pair, const Receiver::Scatter& scatter);
  void RankEnded(PeerRank peer, const Receiver::End& end);
  void EndNow(uint64_t lease_id, const absl::Status& why);
  absl::Status CheckAlive(Pair& pair, absl::Time now);
  void Tick(absl::Time now);

  const Options options_;
  const OnEnd on_end_;
  const OnFlows on_flows_;
  const std::shared_ptr<DeviceRings> ipc_rings_, nccl_rings_;  // null: KV moves by way of the host
  std::atomic<uint64_t> next_link_{1};
  // Of the thread alone.
  std::map<PeerRank, Pair> pairs_;
  std::map<uint64_t, std::optional<PeerRank>> pair_of_link_;  // of links that said hello; nullopt: their pair is over
  std::map<PeerRank, uint64_t> last_epoch_;
  std::map<uint64_t, Lease> leases_;
  FlowBook flows_;
  std::deque<std::pair<PeerRank, Receiver::End>> ended_;  // of machines, not yet of leases
  std::shared_ptr<SerialThread> thread_;
  LinkService service_;
};

}  // namespace sluice::kvtransfer
