// One request's life. Pure; it decides, the core carries out.
//
//   queued ──Dispatch──▶ an attempt (attempt.h) ──complete──▶ done
//     ▲                     │
//     └── refused, moved ───┘──▶ failed: by an error that no other worker would mend, the client, the deadline
//
// Failover: when an attempt fails for a reason that lies with its workers, the request moves: it is queued again, and
// the next attempt continues each choice after the tokens that were emitted. Draws are keyed by position and penalties
// count from num_prompt_tokens, so the client sees a pause and nothing else. Choices stand at different tokens then, so
// each goes on as a part of its own: a request has one *leg* before it moved, and one for each unfinished choice after.
//
// Invariants:
//  - tokens reach the client consecutively from 0, each once (answer.h);
//  - the request ends exactly once: one transition carries `end`, and none does after it;
//  - every leg is queued, runs as one attempt, or is over.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "router/attempt.h"
#include "router/events.h"
#include "router/load_model.h"
#include "router/move_budget.h"
#include "router/request_record.h"

namespace sluice::router {

enum class RequestState { kQueued, kReserved, kPrefilling, kHandingOff, kDecoding, kDone, kFailed };

const char* StateName(RequestState state);

// What a transition asks the core to do, in this order.
struct Transition {
  // What a worker held of an attempt.
  struct Hold {
    uint64_t incarnation = 0;
    int attempt = 0;
    absl::Duration lease;  // after which it is free by itself; zero: unknown
  };
  struct Requeue {
    int leg = 0;
    absl::Time not_before = absl::InfinitePast();
  };

  bool ignored = false;              // stale or repeated: nothing changed
  std::vector<pb::Tokens> tokens;    // for the client
  std::vector<ToWorker> to_workers;  // Prefill, Cancel, Release
  std::vector<Hold> leaving;         // still held; the worker will say when it is not
  std::vector<Hold> freed;           // held no more
  std::vector<int> unqueue;          // legs that need no worker any more
  std::vector<Requeue> requeue;      // legs that need one
  std::vector<uint64_t> blamed;      // workers that failed it
  std::string moved;                 // why, if it moved; for the log
  std::optional<absl::Status> end;   // for the client: the request is over
};

struct RequestOptions {
  int headroom_tokens = 0;  // of an answer, for which blocks are promised in advance; 0: all of it
  MoveLimits moves;
};

class Request {
 public:
  Request(Submit submit, std::string wire_id, const RequestOptions& options = {});

  // ---- from the core ----
  void Queued(uint64_t arrival) { arrival_ = arrival; }
  // REQUIRES: the leg is queued; one worker at least. The message goes to D, or to P where there is no D.
  ToWorker Dispatch(int leg, const Assignment& assignment, absl::Time now);

  // ---- from the workers ----
  Transition OnGranted(const Origin& from, const pb::LeaseGranted& granted, absl::Time now);
  Transition OnRefused(const Origin& from, const pb::Refused& refused, absl::Time now);
  Transition OnTokens(const Origin& from, const pb::Tokens& tokens, absl::Time now);
  Transition OnCommitted(const Origin& from, const pb::Committed& committed, absl::Time now);
  Transition OnFinished(const Origin& from, const pb::Finished& finished, absl::Time now);
  Transition OnFailed(const Origin& from, const pb::Failed& failed, absl::Time now);
  Transition OnProgress(const Origin& from, const pb::Progress& progress, absl::Time now);

  // ---- from elsewhere ----
  Transition OnWorkerLost(uint64_t incarnation, const std::string& why, absl::Time now);
  // A stop string completed the choice; what comes of it after that is dropped.
  Transition OnStopped(int choice, absl::Time now);
  // The client, the deadline or the router itself ends it. OK: the answer is complete.
  Transition OnEnded(const absl::Status& why, absl::Time now);

  RequestState state() const;  // of the leg that is furthest behind
  bool over() const { return end_ != RequestState::kQueued; }
  // The worker is to serve it and is not done with it.
  bool Involves(uint64_t incarnation) const;
  // What is to be renewed at a worker; ascending by leg.
  std::vector<uint64_t> LeasesAt(uint64_t incarnation) const;

  uint64_t call() const { return record_->submit.call; }
  const std::string& wire_id() const { return record_->wire_id; }
  int priority() const { return record_->submit.sequence.priority(); }
  const pb::SequenceSpec& sequence() const { return record_->submit.sequence; }
  std::vector<int32_t> TokensOf(int leg) const;  // that a worker has to have before it can go on with the leg
  const std::string& tenant() const { return record_->submit.sequence.tenant(); }
  uint64_t arrival() const { return arrival_; }
  absl::Time deadline() const { return record_->submit.deadline; }
  absl::Time received() const { return record_->submit.received; }
  int moves() const { return moves_; }
  // Until when it waits for a worker that can have it, since it moved; the past: it has not.
  absl::Time wait_until() const { return wait_until_; }
  // Why it is queued again.
  const absl::Status& moved_because() const { return moved_because_; }

  int legs() const { return int(legs_.size()); }
  AttemptKey attempt(int leg) const { return {wire_id(), legs_[size_t(leg)].number}; }  // the newest
  Demand demand(int leg) const;
  bool RefusedForEver(uint64_t incarnation) const { return never_fits_.contains(incarnation); }
  // It has failed this request; others come first.
  bool Shuns(uint64_t incarnation) const { return shunned_.contains(incarnation); }

  // For the client's last response.
  ClientEnd End(const absl::Status& status, absl::Time now) const;

  // Tokens of it have gone to the client.
  void Emitted(absl::Time now) { emitted_at_ = now; }
  // For those who look on, until now; `end`: how it ended, null while it runs.
  pb::RequestSummary Summary(absl::Time now, const ClientEnd* end) const;

 private:
  struct Leg {
    int first = 0;  // choice
    int count = 1;
    int number = 0;  // of its newest attempt; 0: none yet
    bool over = false;
    MoveBudget budget;
    std::unique_ptr<Attempt> attempt;  // null: queued, or over
  };

  Leg* Find(const Origin& from);
  template <typename Happen>
  Transition Happened(const Origin& from, absl::Time now, Happen happen);
  // What a step of a leg's attempt means to the request; adds it to `transition`.
  void Apply(Leg& leg, AttemptStep step, absl::Time now, Transition& transition);
  void Move(Leg& leg, const AttemptOutcome& outcome, absl::Time now, Transition& transition);
  void Split(Leg& leg, absl::Time not_before, Transition& transition);
  void Finish(RequestState end, absl::Status status, absl::Time now, Transition& transition);
  void AbandonAll(const std::string& why, Transition& transition);
  int IndexOf(const Leg& leg) const { return int(&leg - legs_.data()); }

  std::unique_ptr<RequestRecord> record_;
  uint64_t arrival_ = 0;
  RequestState end_ = RequestState::kQueued;  // or kDone, kFailed
  std::vector<Leg> legs_;
  int attempts_ = 0;
  std::string last_worker_;
  std::string prefill_worker_;  // of the newest attempt; empty: none
  std::string decode_worker_;
  absl::Time emitted_at_;
  MoveLimits limits_;
  int moves_ = 0;
  absl::Time wait_until_ = absl::InfinitePast();
  absl::Status moved_because_;
  std::set<uint64_t> never_fits_;
  std::set<uint64_t> shunned_;
};

}  // namespace sluice::router
