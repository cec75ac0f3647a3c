// All KV transfers of one prefill rank: dials every rank of the decode workers it is told of, keeps the pairs alive,
// gathers and sends. What goes to which rank is the reshard plan's (kvtransfer/reshard_plan.h).
//
// One thread of its own runs the Sender machines, the copies and the channels. Calls from outside (the engine thread)
// only post; results come by callback on that thread.
//
// Promises: a transfer that was opened ends exactly once through on_end, when it has ended at every rank, with the
// first failure of any of them (the others are cancelled then); its blocks must not change or be freed before that. A
// pair that breaks is rebuilt with the next epoch after a backoff; a pair that can't fit is refused once and not
// retried until the peer's incarnation changes.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "kvtransfer/channel.h"
#include "kvtransfer/device_rings.h"
#include "kvtransfer/flow_book.h"
#include "kvtransfer/link.h"
#include "kvtransfer/peer_rank.h"
#include "kvtransfer/piece_copy.h"
#include "kvtransfer/piece_split.h"
#include "kvtransfer/reshard_plan.h"
#include "kvtransfer/sender.h"
#include "kvtransfer/serial_thread.h"
#include "kvtransfer/transfer_id.h"
#include "proto/cluster_key.h"
#include "proto/transfer.pb.h"
#include "proto/transport_security.h"

namespace sluice::kvtransfer {

class PrefillEndpoint {
 public:
  struct Options {
    uint64_t incarnation = 0;
    v1::Fingerprint fingerprint;
    ClusterKey key;              // a decode worker that does not have it is no pair
    TransportSecurity security;  // of the control links
    std::string host_id;
    std::vector<std::string> channels = {"shm", "tcp"};  // the preferred first
    int most_nccl = 16;                                  // pairs over "nccl": each may hold blocks of the GPU
    PoolView kv;
    int rank = 0;     // of this instance
    KvShards shards;  // what each of its ranks holds; empty: one rank, all that `kv` has
    Sender::Options sender;
    absl::Duration ping_interval = absl::Seconds(1);
    absl::Duration silence_limit = absl::Seconds(10);  // without any message the pair is lost
    // Wraps the channel of every pair; for injected faults.
    std::function<std::unique_ptr<SendChannel>(std::unique_ptr<SendChannel>)> wrap_channel;
  };

  enum class PairState { kConnecting, kUp, kRefused };

  struct Callbacks {
    std::function<void(TransferId, const Sender::End&)> on_end;
    // Bytes of the transfer that the peer has acknowledged so far.
    std::function<void(TransferId, int64_t bytes_acked)> on_progress;
    std::function<void(uint64_t decode_incarnation, PairState, const absl::Status&)> on_pair;
    // The numbers of all peers, after a change, at the pace of the endpoint's tick. May be null.
    std::function<void(std::vector<v1::KvFlow>)> on_flows;
  };

  PrefillEndpoint(Options options, Callbacks callbacks);
  ~PrefillEndpoint();  // ends all transfers (on_end is called) and joins the thread

  // The decode workers there are now, with the addresses of their ranks; pairs with others are closed.
  using Peers = std::map<uint64_t, std::vector<std::string>>;  // by incarnation
  void SetPeers(Peers peers);

  // blocks: the sequence's block list, ids in the pool.
  void Open(TransferId id, v1::RequestKey key, std::vector<int32_t> blocks);

  // Blocks [begin, end) of the list hold their final KV in these layers.
  void AddBlocks(TransferId id, int begin, int end, LayerRange layers = {});

  void Commit(TransferId id, v1::Commit commit);
  void Cancel(TransferId id, absl::Status why);

 private:
  struct Pair {
    std::string address;
    PairState state = PairState::kConnecting;
    bool breaking = false;
    uint64_t epoch = 0;
    std::shared_ptr<grpc::Channel> dial;
    std::shared_ptr<SenderLink> link;
    std::unique_ptr<Sender> machine;  // exists while the pair is up
    std::unique_ptr<SendChannel> channel;
    std::string channel_name;
    int failed_meetings = 0;  // in a row, of channels that were made and never ready
    int64_t max_piece_bytes = 0;
    std::vector<KvShard> parts;  // what this rank sends to that one
    absl::Time retry_at;
    absl::Duration backoff = absl::Milliseconds(50);
    absl::Time last_heard, last_ping;
    int bad_channel_ticks = 0;
    std::set<std::string> unfit;  // channels that have turned out not to work with this peer
  };
  struct Transfer {
    std::vector<int32_t> blocks;
    std::map<int, int64_t> open;  // ranks of the peer where it has not ended, with the bytes they have acknowledged
    Sender::End end;              // so far: the first failure, sums, the latest times
  };
  // Of a pair that this side aborted: it stays until the peer has heard why and ends it, or for a moment.
  struct Farewell {
    std::shared_ptr<SenderLink> link;
    absl::Time until;
  };

  void Dial(PeerRank peer, Pair& pair);
  std::vector<std::string> ChannelsFor(const Pair& pair) const;
  absl::StatusOr<std::unique_ptr<SendChannel>> Connect(PeerRank peer, const Pair& pair,
                                                       const v1::ReceiverHello& hello) const;
  v1::SenderMessage MakeHello(PeerRank peer, const Pair& pair) const;
  void OnMessage(PeerRank peer, uint64_t epoch, const v1::ReceiverMessage& message);
  void OnLinkEnd(PeerRank peer, uint64_t epoch, const absl::Status& why);
  bool NoLinks() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(links_mutex_) { return links_.empty(); }
  absl::Status CheckHello(PeerRank peer, const Pair& pair, const v1::ReceiverHello& hello) const;
  void OnHello(PeerRank peer, Pair& pair, const v1::ReceiverHello& hello);
  void Join(PeerRank peer, Pair& pair);
  void Break(PeerRank peer, Pair& pair, absl::Status why);  // by value: it may be the machine's
  void EndFarewells(absl::Time now);
  void MarkDown(PeerRank peer, Pair& pair, const absl::Status& why);
  void TellOfPair(uint64_t incarnation, const absl::Status& why);
  std::vector<PeerRank> RanksOf(uint64_t incarnation) const;
  // The transfer's pairs at which it has not ended.
  void AtOpenPairs(TransferId id, const std::function<void(Sender&, const Pair&)>& call);
  void CarryOut(PeerRank peer, Pair& pair);
  void Gather(Pair& pair, const Sender::Gather& gather, uint64_t incarnation);
  void OnAck(PeerRank peer, const Sender::Ack& ack);
  void RankEnded(PeerRank peer, const Sender::End& end);
  void EndNow(TransferId id, const absl::Status& why);
  void KeepAlive(PeerRank peer, Pair& pair, absl::Time now);
  void Tick(absl::Time now);

  const Options options_;
  const Callbacks callbacks_;
  const std::shared_ptr<DeviceRings> nccl_rings_;  // null: KV moves by way of the host
  // Links that have not ended, with the channel each of them uses: the last reference to a channel must not go on a
  // gRPC thread (gRPC would wait for that very thread). The destructor waits for all of them.
  absl::Mutex links_mutex_;
  std::map<std::pair<PeerRank, uint64_t>, std::shared_ptr<grpc::Channel>> links_ ABSL_GUARDED_BY(links_mutex_);

  // Of the thread alone.
  std::map<PeerRank, Pair> pairs_;
  std::vector<Farewell> farewells_;
  FlowBook flows_;
  std::map<PeerRank, uint64_t> last_epoch_;   // survives the pair
  std::map<TransferId, Transfer> transfers_;  // open ones
  std::shared_ptr<SerialThread> thread_;      // last: everything above is there before it runs
};

}  // namespace sluice::kvtransfer
