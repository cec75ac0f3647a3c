// A router's core among simulated workers on a simulated network, in one thread and from one seed. Carries out what the
// core asks for as the router's edge does (worker_link, registry_service), and speaks for the workers' processes: their
// registration, their streams, their pairs.
//
// Machines are numbered: 0 is the router's, 1 + slot a worker's. A slot is an address on which one process after the
// other may live, each with an incarnation of its own.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "router/core.h"
#include "simulation/kv_links.h"
#include "simulation/model_worker.h"
#include "simulation/network.h"
#include "simulation/rng.h"
#include "simulation/schedule.h"

namespace sluice::simulation {

inline const absl::Time kStart = absl::UnixEpoch() + absl::Hours(1);

struct ClusterOptions {
  uint64_t seed = 1;
  router::CoreOptions core;
  NetworkOptions network;
  std::vector<WorkerModel> workers;            // one a slot
  absl::Duration patience = absl::Seconds(2);  // of the router's connections with a silent peer
};

// Who watches. Each is called for everything, in order.
struct ClusterHooks {
  std::function<void(const router::Event&)> before;
  std::function<void(const router::Action&)> action;
  std::function<void()> after;
  // A message of the router reaches a worker.
  std::function<void(const ModelWorker&, const pb::RouterMessage&)> reached;
};

class Cluster final : private WorkerSurroundings {
 public:
  Cluster(const ClusterOptions& options, ClusterHooks hooks);

  // What happens to the core now, or as soon as the router's machine goes on.
  void Post(router::Event event);
  bool RunNext() { return schedule_.RunNext(); }
  void Stop() { stopped_ = true; }  // the router has shut down: its clock ticks no more

  // ---- the workers' processes ----
  void Start(int slot);
  void Kill(int slot, bool silent);
  void ShutDown(int slot);  // says goodbye; the process ends a moment later
  bool alive(int slot) const { return slots_[size_t(slot)].worker != nullptr; }
  ModelWorker* worker(int slot) { return slots_[size_t(slot)].worker.get(); }
  const ModelWorker* worker(int slot) const { return slots_[size_t(slot)].worker.get(); }
  ModelWorker* WorkerOf(uint64_t incarnation);
  int slots() const { return int(slots_.size()); }
  static Network::Node NodeOf(int slot) { return slot + 1; }
  static constexpr Network::Node kRouter = 0;
  const WorkerModel& model(int slot) const { return slots_[size_t(slot)].model; }
  void set_model(int slot, const WorkerModel& model);  // of the process there, and of those that come

  // ---- faults of streams ----
  bool CutWork(int slot);
  bool CutAnnounce(int slot);

  router::RouterCore& core() { return core_; }
  Schedule& schedule() { return schedule_; }
  Network& network() { return network_; }
  KvLinks& kv_links() { return kv_links_; }
  Rng& rng() { return rng_; }
  absl::Time now() const { return schedule_.now(); }
  int64_t events() const { return events_; }  // that the core has handled
  const router::PoolChanged& pool() const { return pool_; }
  int64_t same_moment_ticks() const { return same_moment_ticks_; }

 private:
  struct Slot {
    WorkerModel model;
    std::unique_ptr<ModelWorker> worker;
    // Its registration.
    uint64_t announce = 0;  // connection; 0: none
    bool announced = false;
    int failures = 0;
    absl::Duration heartbeat = absl::Seconds(1);
    absl::Time next_heartbeat;
    bool report_due = false;  // soon
  };
  struct Link {
    uint64_t connection = 0;
    uint64_t incarnation = 0;
    int slot = 0;
  };

  void Do(router::Event event);
  void TickWhenDue();
  void CarryOut(router::Action& action);
  void Connect(const router::ConnectWorker& action);
  void Arrived(uint64_t link, pb::WorkerMessage message);
  int SlotOf(const pb::Endpoint& endpoint) const;

  // ---- registration (cluster_registration.cc) ----
  // `what` happens if the process still lives then.
  void Later(int slot, absl::Time at, Schedule::What what);
  void Announce(int slot);
  void AnnounceEnded(int slot, uint64_t connection);
  void OnReply(int slot, uint64_t connection, const pb::AnnounceReply& reply);
  void Heartbeat(int slot);
  void SendAnnouncement(int slot, bool first, bool leaving);
  pb::WorkerInfo InfoOf(int slot) const;

  // ---- what the workers ask for ----
  void ToRouter(ModelWorker& from, uint64_t stream, pb::WorkerMessage message) override;
  void CloseStream(ModelWorker& from, uint64_t stream, const absl::Status& why) override;
  void ToPeer(ModelWorker& from, uint64_t peer, KvMessage message) override;
  bool Paired(const ModelWorker& one, uint64_t peer) const override { return kv_links_.Paired(one, peer); }
  const google::protobuf::RepeatedPtrField<pb::PairStatus>& PairsOf(const ModelWorker& w) override {
    return kv_links_.Of(w.incarnation());
  }
  void ReportSoon(ModelWorker& worker) override;
  absl::Time FrozenUntil(const ModelWorker& worker) const override;

  const ClusterOptions options_;
  const ClusterHooks hooks_;
  Rng rng_;
  Schedule schedule_{kStart};
  Network network_;
  KvLinks kv_links_;
  router::RouterCore core_;
  std::vector<Slot> slots_;
  absl::flat_hash_map<uint64_t, int> slot_of_;          // by incarnation, of those that live
  absl::flat_hash_map<uint64_t, Link> links_;           // by the core's number
  absl::flat_hash_map<uint64_t, uint64_t> link_of_;     // by connection
  absl::flat_hash_map<uint64_t, uint64_t> sessions_;    // connection, by session
  absl::flat_hash_map<uint64_t, uint64_t> session_of_;  // by connection
  absl::flat_hash_map<uint64_t, int> announces_;        // slot, by connection
  uint64_t next_session_ = 1;
  absl::Time tick_at_ = absl::InfiniteFuture();
  absl::Time last_tick_;
  int64_t same_moment_ticks_ = 0;  // the most in a row
  int64_t ticks_now_ = 0;
  int64_t events_ = 0;
  bool stopped_ = false;
  router::PoolChanged pool_;
};

}  // namespace sluice::simulation
