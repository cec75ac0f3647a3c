// What must hold of the core after every event, whatever happens around it. Keeps books of its own from what the core
// hears and says; of the workers it asks only whether they still have a request.
//
//  - Who is GONE, DRAINING, stuck or not heard for three heartbeats gets no new request, and nobody gets a message over
//    a stream that is not open.
//  - No worker is given more than it has room for: blocks, sequences of a step, and of a prefill worker the backlog
//    that router/policy.h allows. Of blocks only where the newest report came with the Work stream: one that a
//    heartbeat brings may be ahead of the events, and the model of the load then errs until the next
//    (router/load_model.h).
//  - Of new requests no more wait than the queue's limit.
//  - The clock never stands still.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "simulation/cluster.h"

namespace sluice::simulation {

class Invariants {
 public:
  // `violate` is told what is broken, in words.
  using Violate = std::function<void(std::string)>;
  Invariants(const router::CoreOptions& options, Cluster& cluster, Violate violate)
      : options_(options), cluster_(cluster), violate_(std::move(violate)) {}

  void Before(const router::Event& event);
  void Saw(const router::Action& action);
  void After();
  void Reached(const ModelWorker& worker, const pb::RouterMessage& message);

  int64_t stale_events() const { return stale_events_; }  // of an attempt that is not the newest of its request
  int64_t early_events() const { return early_events_; }  // D spoke before P's first token

 private:
  using Key = std::pair<std::string, int>;
  struct Hold {
    int64_t blocks = 0;
    int choices = 0;
    int64_t prompt = 0;     // to compute
    int64_t backlog = 0;    // of it, as far as the core knows
    bool promised = false;  // chosen, knows nothing yet
    bool reached = false;
    bool has_first = false;
    absl::Time loose = absl::InfiniteFuture();  // when the core stopped to want it
    absl::Duration lease;
  };
  struct Worker {
    pb::WorkerInfo info;
    bool gone = false;
    bool linked = false;
    bool drained = false;  // the operator wants it to get no new work
    uint64_t link = 0;
    uint64_t session = 0;
    pb::WorkerReport report;
    bool from_stream = false;  // it came with the Work stream, in its order
    absl::Time last_heard;
    std::map<Key, Hold> holds;
  };

  void Heard(Worker& worker, const pb::WorkerReport& report, bool from_stream);
  void OnWorkerEvent(Worker& worker, const pb::WorkerEvent& event);
  void Drop(uint64_t incarnation);                 // all that it holds
  void DropPromise(const Key& key, uint64_t but);  // the other worker's, which knows nothing of it
  void Loosen(const Key& key, uint64_t but);
  void OnSend(uint64_t incarnation, Worker& worker, const pb::RouterMessage& message);
  void OnReserve(uint64_t incarnation, Worker& worker, const pb::Reserve& reserve);
  void OnPrefill(uint64_t incarnation, Worker& worker, const pb::Prefill& prefill);
  void CheckMayWork(const Worker& worker, const char* what);
  void CheckCredit(uint64_t incarnation, Worker& worker, const Hold& added);
  void Add(uint64_t incarnation, const Key& key, Hold hold);
  std::string Name(const Worker& worker) const;

  const router::CoreOptions options_;
  Cluster& cluster_;
  const Violate violate_;
  std::map<uint64_t, Worker> workers_;     // by incarnation
  std::map<uint64_t, uint64_t> links_;     // incarnation, by link
  std::map<uint64_t, uint64_t> sessions_;  // incarnation, by session
  std::map<Key, std::set<uint64_t>> who_;  // holds something of an attempt
  std::map<std::string, int> newest_;      // attempt, by request
  std::set<std::string> waiting_;          // requests that no worker has heard of
  int64_t stale_events_ = 0;
  int64_t early_events_ = 0;
};

}  // namespace sluice::simulation
