// Who the workers are and whether they may get work. Pure.
//
//   announce ──▶ SUSPECT ──link up──▶ ACTIVE ──announce stream or heartbeats lost──▶ SUSPECT ──lease over──▶ GONE
//                                        └──the worker's report says so──▶ DRAINING          leaving, replaced ──▶ GONE
//
// ACTIVE means that a request sent now can be computed: the worker is heard and its Work stream is open. A SUSPECT
// worker may be back in a moment and is worth waiting for as long as one of its streams is open. An incarnation is one
// life of a process: a new one on the same address makes the old one GONE at once. GONE workers stay listed for a
// lease, so that people can see what happened, and are then forgotten.
//
// Prefill workers are told of all decode workers alive and report which of them they are paired with; only pairs that
// they report as up exist.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "router/events.h"
#include "router/pair_state.h"

namespace sluice::router {

inline constexpr uint32_t kProtocolVersion = 1;

struct RegistryOptions {
  std::string model_hash;  // empty: any
  std::string model;
  absl::Duration lease = absl::Seconds(10);
  absl::Duration heartbeat = absl::Seconds(1);
};

struct WorkerRecord {
  pb::WorkerInfo info;
  std::string shown;  // name()
  pb::WorkerReport report;
  pb::WorkerState state = pb::WORKER_STATE_SUSPECT;
  uint64_t session = 0;  // 0: the announce stream is lost
  absl::Time last_heard;
  absl::Time gone_at;
  absl::Time grace_end = absl::InfinitePast();  // else its lease is over, but the router has not listened
  bool draining = false;                        // as it reports
  bool told_to_drain = false;

  uint64_t link = 0;  // 0: no Work stream is open or being opened
  bool linked = false;
  absl::Time connect_at;
  absl::Duration backoff;
  absl::Time deadline = absl::InfiniteFuture();  // when time changes something about it

  // Of a prefill worker.
  std::vector<std::pair<uint64_t, PairState>> pairs;  // by decode incarnation, ascending; as reported
  std::vector<uint64_t> peers_told;                   // decode incarnations, ascending
  uint64_t peers_session = 0;                         // on which it was told; 0: never

  uint64_t incarnation() const { return info.incarnation(); }
  std::string name() const;  // "decode 127.0.0.1:7001"
  // Somebody is at the other end, as far as connections tell. A process that dies takes both of its streams with it.
  bool connected() const { return session != 0 || linked; }
};

class Registry {
 public:
  // A worker that is GONE from now on, and why, in words for the clients it served.
  struct Loss {
    uint64_t incarnation = 0;
    uint64_t link = 0;     // to be closed; 0: none
    uint64_t session = 0;  // to be closed; 0: none
    std::string why;
  };

  explicit Registry(const RegistryOptions& options) : options_(options) {}

  // Losses: older incarnations on the same address. FAILED_PRECONDITION (INCOMPATIBLE) names what does not fit.
  absl::StatusOr<std::vector<Loss>> Announce(uint64_t session, const pb::WorkerInfo& info, absl::Time now);

  // False for a session that is not current (stale), or a report that came late.
  bool Heartbeat(uint64_t session, const pb::WorkerReport& report, absl::Time now);
  // A report that came over the Work stream; it does not renew the lease.
  bool Report(WorkerRecord& worker, const pb::WorkerReport& report);

  // What the newest report changes about a prefill worker's pairs.
  struct PairChange {
    uint64_t decode = 0;
    PairState before = PairState::kUnknown;
    PairState after = PairState::kUnknown;
    std::string why;  // of kRefused
  };
  std::vector<PairChange> UpdatePairs(WorkerRecord& worker);
  PairState Pair(uint64_t prefill, uint64_t decode) const;

  // The decode workers that are alive, ascending: ACTIVE, SUSPECT or DRAINING.
  std::vector<uint64_t> DecodePeers() const;
  pb::DecodePeer PeerOf(uint64_t decode) const;  // REQUIRES: known

  std::vector<Loss> Leaving(uint64_t session, absl::Time now);
  void AnnounceLost(uint64_t session);
  // It gets no new work from here.
  void Drain(WorkerRecord& worker, absl::Time now);

  // Links. The core draws the ids; a link that the record does not know is stale and yields null.
  void Connecting(WorkerRecord& worker, uint64_t link);
  WorkerRecord* LinkUp(uint64_t link);
  WorkerRecord* LinkDown(uint64_t link, absl::Time now);  // schedules the next attempt

  // Moves states along as time passes. Called long after a lease was over, or long after NextDeadline, it gives the
  // worker a moment more: a router that stood still (its machine did, say) has not heard what waits in its sockets.
  std::vector<Loss> Advance(absl::Time now);
  absl::Time NextDeadline() const;
  // Who is to be connected now, ascending. REQUIRES: Advance(now)
  std::vector<uint64_t> DueToConnect(absl::Time now) const;
  // Changes with every worker's state, streams, or pairs.
  uint64_t version() const { return version_; }
  // Changes with the decode workers that are alive, and with the announce streams of prefill workers.
  uint64_t peers_version() const { return peers_version_; }

  WorkerRecord* Find(uint64_t incarnation);
  WorkerRecord* FindLink(uint64_t link);
  WorkerRecord* FindSession(uint64_t session);
  const std::map<uint64_t, WorkerRecord>& workers() const { return workers_; }
  std::map<uint64_t, WorkerRecord>& workers() { return workers_; }

 private:
  absl::Status CheckFit(const pb::WorkerInfo& info) const;
  bool IsSilent(WorkerRecord& worker, absl::Time now, bool stood_still) const;
  absl::Time DeadlineOf(const WorkerRecord& worker) const;
  // Something about it has changed.
  void Touch(WorkerRecord& worker);
  void SetDeadline(WorkerRecord& worker, absl::Time at);
  Loss MakeGone(WorkerRecord& worker, absl::Time now, std::string why);
  void UpdateState(WorkerRecord& worker, absl::Time now);
  absl::Time SuspectAt(const WorkerRecord& worker) const { return worker.last_heard + 3 * options_.heartbeat; }

  RegistryOptions options_;
  absl::Time due_ = absl::InfiniteFuture();   // when Advance is to come next at the latest
  std::map<uint64_t, WorkerRecord> workers_;  // by incarnation; ordered, so that runs repeat
  // With many workers nothing may look at all of them at every event.
  std::set<std::pair<absl::Time, uint64_t>> deadlines_;
  std::vector<uint64_t> touched_;                     // since Advance
  absl::flat_hash_map<uint64_t, uint64_t> links_;     // incarnation, by link; may be of a worker that has a newer one
  absl::flat_hash_map<uint64_t, uint64_t> sessions_;  // likewise
  uint64_t version_ = 0;
  uint64_t peers_version_ = 0;
};

}  // namespace sluice::router
