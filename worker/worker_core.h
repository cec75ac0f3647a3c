// What a worker does with the messages of its routers: admission, leases, deadlines, cancellation, token events. Pure:
// no threads, gRPC or clock; it owns the requests and drives an engine through EnginePort, so one thread can run it in
// the server, in a test and in the simulation.
//
// Promises:
//  - Every Reserve gets exactly one of LeaseGranted and Refused, and every granted one exactly one end: Failed, or
//    Finished with `last`. After the end nothing more is said about it, and its blocks are free. A request that ends
//    because its stream ended, or by Release, ends without a word.
//  - A request belongs to the stream that brought it: keys of different streams never meet.
//  - Leases and deadlines run by Tick alone; new work is never needed for them.
//  - Nothing a router sends can fail the engine: what is wrong is refused, or closes that router's stream.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "kvtransfer/lease_table.h"
#include "proto/worker.pb.h"
#include "worker/engine_port.h"

namespace sluice::worker {

inline constexpr uint32_t kProtocolVersion = 1;

using StreamId = uint64_t;  // of a Work stream; never reused

struct CoreOptions {
  uint64_t incarnation = 0;
  absl::Duration lease_term = absl::Seconds(10);
  int vocab = 0;
};

// What a stream is to be sent, in order. `close` set: the stream ends with that status after the message.
struct Outgoing {
  StreamId stream = 0;
  v1::WorkerMessage message;
  std::optional<absl::Status> close;
};

class WorkerCore {
 public:
  // `engine` must outlive the core and be used by nobody else.
  WorkerCore(const CoreOptions& options, EnginePort& engine);

  // `received` is when the message came in, which may be well before this call.
  void OnMessage(StreamId stream, const v1::RouterMessage& message, absl::Time received);

  // The stream is gone: its requests end at once, silently.
  void OnStreamEnd(StreamId stream);

  // Ends what has run out of time. Call it after the messages received until `now`.
  void Tick(absl::Time now);

  // Runs one engine step. An error is the engine's end.
  absl::Status Step();

  // Refuses new requests from now on; those that run go on.
  void Drain() { draining_ = true; }

  // Drain, and end every request with this error.
  void FailAll(const v1::ErrorInfo& error);

  // One message a stream, with everything since the last call.
  std::vector<Outgoing> TakeOutgoing();

  bool has_work() const { return engine_.has_work(); }
  bool draining() const { return draining_; }
  size_t live_requests() const { return requests_.size(); }

  // When Tick has something to do; InfiniteFuture if never.
  absl::Time NextTimer() const;

  // Without `sequence` and `step_ms`, which belong to whoever sends it.
  v1::WorkerReport Report() const;

 private:
  struct Stream {
    enum State { kNew, kOpen, kClosed } state = kNew;
    uint64_t router_incarnation = 0;
    std::set<uint64_t> requests;
  };
  struct Request {
    StreamId stream = 0;
    v1::RequestKey key;
    absl::Time deadline = absl::InfiniteFuture();
    bool logprobs = false;
  };
  using KeyOfStream = std::tuple<StreamId, std::string, int32_t>;
  using EventOfRequest = std::unordered_map<uint64_t, v1::Tokens*>;

  void OnHello(StreamId id, Stream& stream, const v1::RouterHello& hello);
  void OnReserve(StreamId id, const v1::Reserve& reserve, absl::Time received);
  void OnPrefill(StreamId id, const v1::Prefill& prefill);
  void OnCancel(StreamId id, const v1::Cancel& cancel);
  void OnRelease(StreamId id, const v1::Release& release);
  void OnRenew(StreamId id, const v1::Renew& renew, absl::Time received);

  std::optional<v1::ErrorInfo> TryAdmit(StreamId id, const v1::Reserve& reserve, absl::Time received);
  void Emit(const engine::TokenOutput& output, EventOfRequest& events);
  void AppendTokens(uint64_t id, const engine::TokenOutput& output, EventOfRequest& events);

  // Forgets the request; Fail also frees its blocks and says so. REQUIRES: it lives.
  void Forget(uint64_t id);
  void Fail(uint64_t id, const v1::ErrorInfo& error);
  void DropRequestsOf(Stream& stream);
  void Close(StreamId id, Stream& stream, absl::Status status);

  uint64_t FindRequest(StreamId stream, const v1::RequestKey& key) const;  // 0: none
  v1::WorkerEvent* NewEvent(StreamId stream, const v1::RequestKey& key);
  Outgoing& PendingOf(StreamId stream);

  const CoreOptions options_;
  EnginePort& engine_;
  bool draining_ = false;
  kvtransfer::LeaseTable leases_;                   // a lease's id is the engine's id of the request
  std::unordered_map<uint64_t, Request> requests_;  // by lease id; as many as leases
  std::map<KeyOfStream, uint64_t> by_key_;
  std::set<std::pair<absl::Time, uint64_t>> deadlines_;  // of the requests that have one
  std::map<StreamId, Stream> streams_;
  std::map<StreamId, Outgoing> pending_;
};

}  // namespace sluice::worker
