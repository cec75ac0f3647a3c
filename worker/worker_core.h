// What a worker of any role does with the messages of its routers: streams, admission, leases, deadlines, cancellation,
// draining, reports. Pure: no threads, gRPC or clock; it drives an engine through EnginePort and a role through Role,
// so one thread can run it in the server, in a test and in the simulation.
//
// Promises:
//  - Every Reserve gets exactly one of LeaseGranted and Refused. Every request that was granted, and every Prefill that
//    was not Refused, has at most one end: Failed, or Finished with `last`, and then nothing more is said about it. (A
//    prefill that was handed over ends with the progress entry `transfer_done`.) A request that ends because its stream
//    ended, or by Release, ends without a word.
//  - Failed comes when the blocks are free.
//  - A request belongs to the stream that brought it: keys of different streams never meet.
//  - Leases and deadlines run by Tick alone; new work is never needed for them.
//  - Where blocks are short routers take turns (turns.h), and each hears at once when some become free.
//  - Nothing a router sends can fail the engine: what is wrong is refused, or closes that router's stream.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/cluster_key.h"
#include "proto/worker.pb.h"
#include "worker/engine_port.h"
#include "worker/prefix_feed.h"
#include "worker/request_table.h"
#include "worker/role.h"
#include "worker/turns.h"

namespace sluice::worker {

inline constexpr uint32_t kProtocolVersion = 1;

struct CoreOptions {
  uint64_t incarnation = 0;
  int vocab = 0;
  ClusterKey key;  // a router that does not have it is refused
};

class WorkerCore {
 public:
  // All three must outlive the core; the engine and the table are used by it and its role only.
  WorkerCore(const CoreOptions& options, EnginePort& engine, RequestTable& requests, Role& role);

  // `received` is when the message came in, which may be well before this call.
  void OnMessage(StreamId stream, const v1::RouterMessage& message, absl::Time received);

  // The stream is gone: its requests end at once, silently.
  void OnStreamEnd(StreamId stream);

  // Ends what has run out of time. Call it after the messages received until `now`.
  void Tick(absl::Time now);

  // Plans an engine step; null when nothing can be computed now. The step is executed elsewhere (EnginePort::Execute);
  // messages may be handled meanwhile.
  std::unique_ptr<engine::StepWork> BeginStep();

  // What an executed step brought; `now` is its end. AfterStep follows once that is on its way (TakeOutgoing).
  void CommitStep(std::unique_ptr<engine::StepWork> step, absl::Time now);
  // All of it at once; `clock` is read once, at the end. An error is the engine's end.
  absl::Status Step(const std::function<absl::Time()>& clock);
  void AfterStep() { role_.AfterStep(); }

  // Refuses new requests from now on; those that run go on.
  void Drain() { draining_ = true; }

  // Says this of every request, of each when its blocks are free.
  void EndAll(const v1::ErrorInfo& error);

  // The worker's end: Drain, and say this of every request at once, without waiting for anybody.
  void FailAll(const v1::ErrorInfo& error);

  // One message a stream, with everything since the last call.
  std::vector<Outgoing> TakeOutgoing();

  bool has_work() const { return engine_.has_work(); }
  bool draining() const { return draining_; }
  size_t live_requests() const { return requests_.size(); }

  // When Tick has something to do; InfiniteFuture if never.
  absl::Time NextTimer() const { return std::min(requests_.NextTimer(), turns_.NextTimer()); }

  // Without what others know better: `sequence`, `step_ms`, `pairs`.
  v1::WorkerReport Report() const;

 private:
  struct Stream {
    enum State { kNew, kOpen, kClosed } state = kNew;
    uint64_t router_incarnation = 0;
    PrefixFeed prefixes;
    int64_t known_free = 0;  // blocks, as it was told last
  };

  void OnHello(StreamId id, Stream& stream, const v1::RouterHello& hello);
  void OnReserve(StreamId id, const v1::Reserve& reserve, absl::Time received);
  void OnPrefill(StreamId id, const v1::Prefill& prefill, absl::Time received);
  void OnCancel(StreamId id, const v1::Cancel& cancel);
  void OnRelease(StreamId id, const v1::Release& release);
  void OnRenew(StreamId id, const v1::Renew& renew, absl::Time received);

  // The checks that all requests share.
  std::optional<v1::ErrorInfo> CheckNew(StreamId id, const v1::RequestKey& key, int64_t remaining_ms) const;
  using AdmitByRole = std::function<std::optional<v1::ErrorInfo>(uint64_t id, engine::EngineRequest request)>;
  std::optional<v1::ErrorInfo> Admit(RequestTable::Arrival arrival, const v1::SequenceSpec& spec, int64_t remaining_ms,
                                     const AdmitByRole& admit);
  void Refuse(StreamId id, const v1::RequestKey& key, v1::ErrorInfo error);

  // Ends a request with these words, or without any. No-op for one that is ending already.
  void End(uint64_t id, const v1::ErrorInfo& why, const LastWords& words);
  void DropRequestsOf(StreamId id);
  bool WaitsForItsTurn(StreamId id, const v1::RequestKey& key);
  void TookTurn(StreamId id, const std::optional<v1::ErrorInfo>& error);
  void TellOfFreeBlocks();
  void AddPrefixes(std::vector<Outgoing>& outgoing);
  void Close(StreamId id, Stream& stream, absl::Status status);

  const CoreOptions options_;
  EnginePort& engine_;
  RequestTable& requests_;
  Role& role_;
  bool draining_ = false;
  Turns turns_;
  absl::Time now_ = absl::InfinitePast();  // as far as it was told
  std::map<StreamId, Stream> streams_;
};

}  // namespace sluice::worker
