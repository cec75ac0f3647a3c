// One request's life as an explicit state machine. Pure; it decides, the core carries out.
//
//   queued ──dispatch──▶ reserved ──▶ prefilling ──▶ handing_off ──▶ decoding ──▶ done
//     ▲                     │                                            │
//     └──refused, may pass──┘            anything that ends it otherwise ──▶ failed
//
// A worker of role `both` computes the prompt itself, so `reserved` leads to `decoding` as soon as the lease is
// granted. Invariants:
//  - the router's record of what it sent is the truth: tokens reach the client consecutively from 0, each once;
//  - an event of another attempt or incarnation changes nothing;
//  - the request ends exactly once: one transition carries `end`, and none does after it.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "router/events.h"
#include "router/load_model.h"

namespace sluice::router {

enum class RequestState { kQueued, kReserved, kPrefilling, kHandingOff, kDecoding, kDone, kFailed };

const char* StateName(RequestState state);

// Whom a worker's event speaks for.
struct Origin {
  uint64_t incarnation = 0;
  int attempt = 0;
};

// What a transition asks the core to do, in this order.
struct Transition {
  bool ignored = false;                        // stale or repeated: nothing changed
  std::optional<pb::Tokens> tokens;            // for the client
  std::optional<pb::RouterMessage> to_worker;  // Cancel
  bool worker_free = false;                    // the worker holds nothing of this attempt any more
  bool requeue = false;
  std::optional<absl::Status> end;  // for the client: the request is over
};

class Request {
 public:
  Request(Submit submit, std::string wire_id);

  // ---- from the core ----
  void Queued(uint64_t arrival) { arrival_ = arrival; }
  // REQUIRES: queued. The message asks `incarnation` for blocks.
  pb::RouterMessage Dispatch(uint64_t incarnation, const std::string& worker, absl::Time now);

  // ---- from the worker ----
  Transition OnGranted(const Origin& from, const pb::LeaseGranted& granted, absl::Time now);
  Transition OnRefused(const Origin& from, const pb::Refused& refused, absl::Time now);
  Transition OnTokens(const Origin& from, const pb::Tokens& tokens, absl::Time now);
  Transition OnFinished(const Origin& from, const pb::Finished& finished, absl::Time now);
  Transition OnFailed(const Origin& from, const pb::Failed& failed, absl::Time now);
  Transition OnProgress(const Origin& from, const pb::Progress& progress);

  // ---- from elsewhere ----
  Transition OnWorkerLost(uint64_t incarnation, const std::string& why, absl::Time now);
  // The client, the deadline or the router itself ends it. OK: the answer is complete (a stop string).
  Transition OnEnded(const absl::Status& why, absl::Time now);

  RequestState state() const { return state_; }
  bool over() const { return state_ == RequestState::kDone || state_ == RequestState::kFailed; }
  bool at_worker() const { return !over() && state_ != RequestState::kQueued; }
  uint64_t incarnation() const { return incarnation_; }  // of the worker, while at_worker()
  AttemptKey attempt() const { return {wire_id_, attempt_}; }
  uint64_t lease() const { return lease_; }  // 0: not granted
  absl::Duration lease_time() const { return lease_time_; }

  uint64_t call() const { return submit_.call; }
  const std::string& wire_id() const { return wire_id_; }
  int priority() const { return submit_.sequence.priority(); }
  uint64_t arrival() const { return arrival_; }
  absl::Time deadline() const { return submit_.deadline; }
  Demand demand() const;
  bool RefusedForEver(uint64_t incarnation) const { return never_fits_.contains(incarnation); }

  // For the client's last response.
  ClientEnd End(const absl::Status& status, absl::Time now) const;

 private:
  bool Stale(const Origin& from) const;
  Transition Fail(absl::Status status, absl::Time now);         // the worker is told
  Transition FailQuietly(absl::Status status, absl::Time now);  // the worker knows, or is lost
  void Mark(const char* event, absl::Time now, int64_t amount = 0);
  int emitted(int choice) const { return emitted_[choice]; }

  Submit submit_;
  std::string wire_id_;
  RequestState state_ = RequestState::kQueued;
  uint64_t arrival_ = 0;
  int attempt_ = 0;
  uint64_t incarnation_ = 0;
  std::string worker_;
  uint64_t lease_ = 0;
  absl::Duration lease_time_;
  std::set<uint64_t> never_fits_;

  std::vector<int> emitted_;               // tokens sent to the client, per choice
  std::vector<pb::FinishReason> reasons_;  // per choice
  int cached_tokens_ = 0;
  std::vector<pb::TimelineEvent> timeline_;
};

// A worker's error as the client should see it: its class survives the hop.
absl::Status ToStatus(const pb::ErrorInfo& error, const std::string& worker);

}  // namespace sluice::router
