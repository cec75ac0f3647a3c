// What the router's core hears (Event) and what it asks its surroundings to do (Action). Plain values: the server, the
// tests and the simulation speak to the core through nothing else.
//
// Times are absl::Time of any monotonic clock; only differences matter. Names that appear here:
//   call         one client call, numbered by the edge; never reused
//   incarnation  one life of a worker process
//   session      one Announce stream, numbered by the edge; never reused
//   link         one Work stream, numbered by the core; never reused
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/worker.pb.h"

namespace sluice::router {

namespace pb = ::sluice::v1;

// ---- events ----

// A validated request. `sequence` is complete: defaults, seed and eos ids are filled in.
struct Submit {
  uint64_t call = 0;
  std::string request_id;
  pb::SequenceSpec sequence;
  absl::Time received;
  absl::Time deadline = absl::InfiniteFuture();
  absl::Duration ttft_limit;  // what the client wants to be told early if it can't be; zero: none
  absl::Duration tpot_limit;
};

// The client does not want the answer any more. The edge has told it already or it is gone, but it still gets its
// ClientEnd, so that every call ends the same way.
struct ClientCancel {
  uint64_t call = 0;
  absl::Status why;
};

// The edge found a stop string: the choice is complete, whatever the worker is computing.
struct StopFound {
  uint64_t call = 0;
  int choice = 0;
};

struct WorkerAnnounced {
  uint64_t session = 0;
  pb::WorkerInfo info;
};

struct WorkerHeartbeat {
  uint64_t session = 0;
  pb::WorkerReport report;
};

struct WorkerLeaving {
  uint64_t session = 0;
};

struct AnnounceLost {
  uint64_t session = 0;
};

struct LinkUp {
  uint64_t link = 0;
  pb::WorkerHello hello;
};

struct LinkDown {
  uint64_t link = 0;
  absl::Status why;
};

// An operator wants the worker to get no new work.
struct DrainWorker {
  uint64_t incarnation = 0;
  bool hand_over = false;  // what it decodes goes on elsewhere
};

// One message of a Work stream.
struct WorkerBatch {
  uint64_t link = 0;
  pb::WorkerMessage message;
};

// Time has passed (NextDeadline came).
struct Tick {};

// Ends every request with UNAVAILABLE and takes no more.
struct Shutdown {};

using Event = std::variant<Submit, ClientCancel, StopFound, WorkerAnnounced, WorkerHeartbeat, WorkerLeaving,
                           AnnounceLost, LinkUp, LinkDown, DrainWorker, WorkerBatch, Tick, Shutdown>;

// ---- actions ----

// New tokens of a call: per choice they are consecutive from 0 and never repeated.
struct ClientTokens {
  uint64_t call = 0;
  absl::Time at;
  pb::Tokens tokens;
};

// Why a request was turned away before it was queued.
enum class RefusalReason { kNone, kNoWorker, kQueueFull, kTtftSlo, kShutdown };

// The last word on a call; exactly one for each Submit. With status OK, `reasons` has one entry per choice.
struct ClientEnd {
  uint64_t call = 0;
  absl::Time at;
  absl::Status status;
  RefusalReason refusal = RefusalReason::kNone;
  absl::Duration retry_after;  // zero: no advice
  std::vector<pb::FinishReason> reasons;
  int cached_tokens = 0;
  std::vector<pb::TimelineEvent> timeline;
  int64_t transfer_bytes = 0;  // of KV, between workers
  double exposed_transfer_ms = 0;
  int moves = 0;  // to other workers
};

// Opens a Work stream. Answered by LinkUp (after WorkerHello) or LinkDown, and by LinkDown once at its end.
struct ConnectWorker {
  uint64_t link = 0;
  uint64_t incarnation = 0;
  pb::Endpoint endpoint;
};

struct DisconnectWorker {
  uint64_t link = 0;
  std::string why;
};

struct SendToWorker {
  uint64_t link = 0;
  pb::RouterMessage message;
};

struct AnswerAnnounce {
  uint64_t session = 0;
  pb::AnnounceReply reply;
};

// Ends an Announce stream; OK for one that said it leaves.
struct CloseAnnounce {
  uint64_t session = 0;
  absl::Status status;
};

// What the workers can do together has changed.
struct PoolChanged {
  bool serving = false;    // a request that comes now can be computed: by a worker of role both, or by a pair
  int token_capacity = 0;  // longest prompt + answer that some live worker can hold; 0: no worker
};

// A line for the log; debug lines only when CoreOptions::explain is set.
struct Note {
  bool debug = false;
  std::string text;
};

using Action = std::variant<ClientTokens, ClientEnd, ConnectWorker, DisconnectWorker, SendToWorker, AnswerAnnounce,
                            CloseAnnounce, PoolChanged, Note>;

}  // namespace sluice::router
