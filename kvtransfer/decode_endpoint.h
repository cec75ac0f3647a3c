// All KV transfers of one decode rank: accepts the links of prefill ranks, grants, scatters, checks.
//
// One thread of its own runs the Receiver machines, the checksums and the copies. Calls from outside (the engine
// thread) only post; results come by callback on that thread.
//
// Promise: every expected lease ends exactly once through on_end, and nothing writes to its blocks after that. The
// owner must not free the blocks before. A link of a stale epoch, of another decode incarnation or of an unfit worker
// is refused and changes nothing.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "kvtransfer/channel.h"
#include "kvtransfer/link.h"
#include "kvtransfer/piece_copy.h"
#include "kvtransfer/receiver.h"
#include "kvtransfer/serial_thread.h"

namespace sluice::kvtransfer {

class DecodeEndpoint {
 public:
  struct Options {
    uint64_t incarnation = 0;
    v1::Fingerprint fingerprint;
    std::string host_id;
    std::string host = "127.0.0.1";                      // to listen on for bytes over TCP
    std::vector<std::string> channels = {"shm", "tcp"};  // that may be used; "shm" only within a host
    HostKv kv;
    Receiver::Options receiver;  // window and max_piece_bytes are also the channel's
    absl::Duration ping_interval = absl::Seconds(1);
    absl::Duration silence_limit = absl::Seconds(10);
  };

  // on_end.status is OK when everything that the Commit named has landed with the right checksum.
  using OnEnd = std::function<void(const Receiver::End&)>;

  DecodeEndpoint(Options options, OnEnd on_end);
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
    std::shared_ptr<ReceiverLink> link;
    std::unique_ptr<Receiver> machine;
    std::unique_ptr<ReceiveChannel> channel;
    absl::Time last_heard, last_ping;
    int bad_channel_ticks = 0;
  };
  struct Lease {
    uint64_t prefill_incarnation = 0;
    std::vector<int32_t> blocks;
    absl::Time committed = absl::InfiniteFuture();  // when the Commit was received
    absl::Time landed = absl::InfinitePast();       // when the last piece had
  };

  struct NewChannel {
    std::unique_ptr<ReceiveChannel> channel;
    std::string endpoint;
  };
  std::string ChannelFor(const v1::SenderHello& hello) const;
  absl::StatusOr<NewChannel> MakeChannel(const std::string& name, uint64_t prefill, uint64_t epoch);

  LinkHandler<v1::SenderMessage> Accept(std::shared_ptr<ReceiverLink> link);
  void OnMessage(uint64_t link_id, const std::shared_ptr<ReceiverLink>& link, const v1::SenderMessage& message,
                 absl::Time received, absl::Time heard);
  void OnLinkEnd(uint64_t link_id);
  void OnHello(uint64_t link_id, const std::shared_ptr<ReceiverLink>& link, const v1::SenderMessage& message);
  absl::Status CheckHello(const v1::SenderMessage& message) const;
  void OnArrival(uint64_t prefill_incarnation, uint64_t epoch, uint64_t sequence);
  void Break(uint64_t prefill_incarnation, absl::Status why);  // by value: it may be the machine's
  void CarryOut(uint64_t prefill_incarnation, Pair& pair);
  void Scatter(Pair& pair, const Receiver::Scatter& scatter);
  void EndNow(uint64_t lease_id, const absl::Status& why);
  void Tick(absl::Time now);

  const Options options_;
  const OnEnd on_end_;
  std::atomic<uint64_t> next_link_{1};
  // Of the thread alone.
  std::map<uint64_t, Pair> pairs_;             // by prefill incarnation
  std::map<uint64_t, uint64_t> pair_of_link_;  // of links that said hello: prefill incarnation, 0: their pair is over
  std::map<uint64_t, uint64_t> last_epoch_;    // by prefill incarnation
  std::map<uint64_t, Lease> leases_;
  std::shared_ptr<SerialThread> thread_;
  LinkService service_;
};

}  // namespace sluice::kvtransfer
