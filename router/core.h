// The router without its sockets: every decision, none of the IO. Pure and deterministic: the same events at the same
// times with the same seed give the same actions. One thread at a time.
//
// Promises: each Submit gets exactly one ClientEnd; its tokens come before it, consecutive and each once; when all
// requests have ended and the workers have confirmed (or are gone), no table holds anything of them.
//
// In three files: what it hears (core.cc), what follows from that and from time (core_advance.cc), what it shows
// (core_state.cc).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "router/breaker.h"
#include "router/core_counters.h"
#include "router/events.h"
#include "router/load_model.h"
#include "router/policy.h"
#include "router/prefix_book.h"
#include "router/queue.h"
#include "router/registry.h"
#include "router/request.h"
#include "router/request_log.h"

namespace sluice::router {

struct CoreOptions {
  RegistryOptions registry;
  QueueOptions queue;
  PolicyOptions policy;
  absl::Duration ttft_slo;  // of requests that bring none; zero: none
  absl::Duration tpot_slo;
  size_t prefix_entries = 1 << 20;  // (block, worker) pairs that the prefix index holds
  RequestOptions request;
  uint64_t router_incarnation = 1;
  uint64_t seed = 1;            // of the ties
  size_t ended_requests = 200;  // that are remembered for those who look
  bool explain = false;         // placement notes
  std::string version;
  int context_length = 0;
};

class RouterCore {
 public:
  explicit RouterCore(const CoreOptions& options);

  std::vector<Action> Handle(Event event, absl::Time now);

  // When Handle(Tick) is due at the latest.
  absl::Time NextDeadline() const;

  pb::ClusterState State() const;
  // What runs, then what ended, each with the newest first; `limit` in all. For a page or a person, not every moment.
  pb::RequestList Requests(int limit, absl::Time now) const;
  const CoreCounters& counters() const { return counters_; }

  // Sizes of everything that could leak.
  struct Sizes {
    int requests = 0;
    int wire_ids = 0;
    int queued = 0;
    int deadlines = 0;
    int closing = 0;
    int parked = 0;
    int attempts = 0;  // in the load model
    int promises = 0;  // of prefixes
    bool operator==(const Sizes&) const = default;
  };
  Sizes sizes() const;

 private:
  void On(Submit& event);
  void On(ClientCancel& event);
  void On(StopFound& event);
  void On(WorkerAnnounced& event);
  void On(WorkerHeartbeat& event);
  void On(WorkerLeaving& event);
  void On(AnnounceLost& event);
  void On(LinkUp& event);
  void On(LinkDown& event);
  void On(DrainWorker& event);
  void On(WorkerBatch& event);
  void On(Tick&) {}
  void On(Shutdown& event);

  void OnWorkerEvent(WorkerRecord& worker, const pb::WorkerEvent& event);
  // Carries a transition out. REQUIRES: the request is in requests_; it may be gone afterwards.
  void Apply(Request& request, Transition transition);
  // Workers that failed a request.
  void Blame(const std::vector<uint64_t>& workers);
  // What a request's event tells about its worker's load, whatever becomes of the request.
  void Charge(WorkerLoad& load, const AttemptKey& key, const pb::WorkerEvent& event);
  void RenewFrom(uint64_t incarnation, absl::Duration lease);
  // A worker that was let go has confirmed it, or not yet. True: nobody else wants the event.
  bool OnClosing(uint64_t incarnation, const AttemptKey& key, const pb::WorkerEvent& event);
  void EndCall(uint64_t call, const absl::Status& why);
  void Erase(Request& request);
  void Requeue(const Request& request, int leg);
  Queue::Entry EntryOf(const Request& request, int leg) const;
  void Lose(const std::vector<Registry::Loss>& losses);
  void CountLost(const std::vector<Registry::Loss>& losses);
  void LoseRequests(uint64_t incarnation, const std::string& why);
  void NotePairs(WorkerRecord& worker);
  void AnswerAnnouncement(WorkerRecord& worker);

  // What time and changed tables bring about; runs after every event.
  void Advance();
  void Connect();
  void TellPeers();
  void ExpireDeadlines();
  void ExpireClosing();
  void Unpark();
  void RenewLeases();
  void PlaceQueued();
  bool PlaceHead();
  // A request that moved waits for a worker that can have it; until when. The past: its time is over, or it never
  // moved.
  absl::Time HeadWaits() const;
  void Dispatch(Request& request, int leg, const Placement& placement);
  void PublishPool();

  void Send(uint64_t incarnation, pb::RouterMessage message);
  void Say(bool debug, std::string text);
  // Those that may get work now or soon; with `request`, what they are to its leg.
  Pools Live(const Request* request, int leg = 0);
  // Of a new request: nobody could serve it, or not in the time that it gives.
  absl::Status CheckNew(const Request& request, RefusalReason& why);
  void EndRequest(const Request& request, ClientEnd end);
  // Nothing of the attempt is at the worker any more.
  void EndAt(uint64_t incarnation, const AttemptKey& key);
  WorkerLoad* LoadOf(uint64_t incarnation);

  CoreOptions options_;
  std::mt19937_64 rng_;
  Registry registry_;
  Queue queue_;
  std::set<std::pair<absl::Time, Ticket>> parked_;  // legs that wait a moment before they queue again
  std::map<uint64_t, WorkerLoad> loads_;            // by incarnation
  std::map<uint64_t, Breaker> breakers_;            // likewise; of those that failed
  PrefixBook prefixes_;
  uint64_t turn_ = 0;  // dispatches so far

  absl::flat_hash_map<uint64_t, std::unique_ptr<Request>> requests_;  // by call
  absl::flat_hash_map<std::string, uint64_t> wire_ids_;
  std::set<std::pair<absl::Time, uint64_t>> deadlines_;  // of all live requests that have one

  // Attempts that a worker was told to end, or will end by itself, and has not confirmed yet; they still count as its
  // load. Without a word they are forgotten after a lease, when the worker, no longer renewed, has freed them by
  // itself.
  struct Closing {
    absl::Time forget_at;
  };
  std::map<std::pair<uint64_t, AttemptKey>, Closing> closing_;  // by incarnation and attempt
  absl::Time forget_due_ = absl::InfiniteFuture();              // not later than the first of them

  struct Renewal {
    absl::Time at = absl::InfiniteFuture();
    absl::Duration lease = absl::InfiniteDuration();
  };
  std::map<uint64_t, Renewal> renewals_;           // by incarnation
  absl::Time renew_due_ = absl::InfiniteFuture();  // not later than the first of them

  // What was true of the registry when it was looked through last.
  uint64_t peers_version_ = ~uint64_t{0};
  uint64_t pool_version_ = ~uint64_t{0};
  bool pool_by_time_ = true;  // breakers had a part in it, too

  uint64_t next_link_ = 1;
  bool shut_down_ = false;
  PoolChanged published_;
  RequestLog log_;
  CoreCounters counters_;

  // Valid during Handle.
  absl::Time now_;
  std::vector<Action> actions_;
};

}  // namespace sluice::router
