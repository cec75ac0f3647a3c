// All KV transfers of one prefill rank: dials every decode rank it is told of, keeps the pairs alive, gathers and
// sends.
//
// One thread of its own runs the Sender machines, the copies and the channels. Calls from outside (the engine thread)
// only post; results come by callback on that thread.
//
// Promises: a transfer that was opened ends exactly once through on_end, whatever happens; its blocks must not change
// or be freed before that. A pair that breaks is rebuilt with the next epoch after a backoff; a pair that can't fit is
// refused once and not retried until the peer's incarnation changes.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "kvtransfer/channel.h"
#include "kvtransfer/link.h"
#include "kvtransfer/piece_copy.h"
#include "kvtransfer/sender.h"
#include "kvtransfer/serial_thread.h"
#include "kvtransfer/transfer_id.h"
#include "proto/transfer.pb.h"

namespace sluice::kvtransfer {

class PrefillEndpoint {
 public:
  struct Options {
    uint64_t incarnation = 0;
    v1::Fingerprint fingerprint;
    std::string host_id;
    std::vector<std::string> channels = {"shm", "tcp"};  // the preferred first
    HostKv kv;
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
  };

  PrefillEndpoint(Options options, Callbacks callbacks);
  ~PrefillEndpoint();  // ends all transfers (on_end is called) and joins the thread

  // The decode ranks there are now; pairs with others are closed.
  void SetPeers(std::map<uint64_t, std::string> address_by_incarnation);

  // blocks: the sequence's block list, ids in the pool.
  void Open(TransferId id, v1::RequestKey key, std::vector<int32_t> blocks);

  // Blocks [begin, end) of the list hold their final KV.
  void AddBlocks(TransferId id, int begin, int end);

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
    int64_t max_piece_bytes = 0;
    absl::Time retry_at;
    absl::Duration backoff = absl::Milliseconds(50);
    absl::Time last_heard, last_ping;
    int bad_channel_ticks = 0;
  };
  // Of a pair that this side aborted: it stays until the peer has heard why and ends it, or for a moment.
  struct Farewell {
    std::shared_ptr<SenderLink> link;
    absl::Time until;
  };

  void Dial(uint64_t incarnation, Pair& pair);
  void OnMessage(uint64_t incarnation, uint64_t epoch, const v1::ReceiverMessage& message);
  void OnLinkEnd(uint64_t incarnation, uint64_t epoch, const absl::Status& why);
  bool NoLinks() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(links_mutex_) { return links_.empty(); }
  void OnHello(uint64_t incarnation, Pair& pair, const v1::ReceiverHello& hello);
  void Break(uint64_t incarnation, Pair& pair, absl::Status why);  // by value: it may be the machine's
  void EndFarewells(absl::Time now);
  void MarkDown(uint64_t incarnation, Pair& pair, const absl::Status& why);
  void CarryOut(uint64_t incarnation, Pair& pair);
  void Gather(Pair& pair, const Sender::Gather& gather, uint64_t incarnation);
  void EndNow(TransferId id, const absl::Status& why);
  void Tick(absl::Time now);

  const Options options_;
  const Callbacks callbacks_;
  // Links that have not ended, with the channel each of them uses: the last reference to a channel must not go on a
  // gRPC thread (gRPC would wait for that very thread). The destructor waits for all of them.
  absl::Mutex links_mutex_;
  std::map<std::pair<uint64_t, uint64_t>, std::shared_ptr<grpc::Channel>> links_ ABSL_GUARDED_BY(links_mutex_);

  // Of the thread alone.
  std::map<uint64_t, Pair> pairs_;  // by decode incarnation
  std::vector<Farewell> farewells_;
  std::map<uint64_t, uint64_t> last_epoch_;               // by decode incarnation; survives the pair
  std::map<TransferId, std::vector<int32_t>> transfers_;  // open ones, with their blocks
  std::shared_ptr<SerialThread> thread_;                  // last: everything above is there before it runs
};

}  // namespace sluice::kvtransfer
