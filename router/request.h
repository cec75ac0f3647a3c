// One request's life as an explicit state machine. Pure; it decides, the core carries out.
//
//   queued ──Reserve to D──▶ reserved ──granted, Prefill to P──▶ prefilling ──token 0 from P──▶ handing_off
//     ▲                         │                                  │ │                              │
//     └── refused, may pass ────┴──────────────────────────────────┘ │                        Committed from D
//                                                                    │                              ▼
//         done ◀── the answer is over with token 0 ──────────────────┘          done ◀──Finished── decoding
//
//   failed: from everywhere, by an error of either worker, its loss, the client, the deadline.
//
// Of several choices some may be over with token 0, which P says, while the others go on at D. The request is done when
// each choice is over: by the word of the worker that has it, or by a stop string that was found here.
//
// D is a decode worker and P a prefill worker. A worker of role `both` computes the prompt itself: `reserved` leads to
// `decoding` as soon as the lease is granted. An answer of one token needs no D: `queued` leads to `prefilling`.
//
// Nothing is assumed about the order of what P and D say: D's Committed, its tokens and even its Finished may come
// before P's token 0 and are held until then. Invariants:
//  - the router's record of what it sent is the truth: tokens reach the client consecutively from 0, each once;
//  - an event of another attempt or incarnation, or of a worker that is done with the request, changes nothing;
//  - the request ends exactly once: one transition carries `end`, and none does after it;
//  - every worker that was told of an attempt is let go exactly once: it is in `freed` or in `leaving` of one
//    transition.
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

// Who serves an attempt.
struct Assignment {
  struct Worker {
    uint64_t incarnation = 0;  // 0: none
    std::string name;
  };
  Worker decode;   // or `both`; none: an answer of one token
  Worker prefill;  // none: `decode` computes the prompt too
};

struct ToWorker {
  uint64_t incarnation = 0;
  pb::RouterMessage message;
};

// What a transition asks the core to do, in this order.
struct Transition {
  bool ignored = false;              // stale or repeated: nothing changed
  std::vector<pb::Tokens> tokens;    // for the client
  std::vector<ToWorker> to_workers;  // Prefill, Cancel, Release
  std::vector<uint64_t> leaving;     // workers that still hold something of the attempt and will say when they don't
  std::vector<uint64_t> freed;       // workers that hold nothing of the attempt any more
  bool requeue = false;
  std::optional<absl::Status> end;  // for the client: the request is over
};

class Request {
 public:
  // `headroom_tokens`: of an answer, for which blocks are promised in advance; 0: all of it.
  Request(Submit submit, std::string wire_id, int headroom_tokens = 0);

  // ---- from the core ----
  void Queued(uint64_t arrival) { arrival_ = arrival; }
  // REQUIRES: queued; one worker at least. The message goes to D, or to P where there is no D.
  ToWorker Dispatch(const Assignment& assignment, absl::Time now);

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

  RequestState state() const { return state_; }
  bool over() const { return state_ == RequestState::kDone || state_ == RequestState::kFailed; }
  // The worker is to serve this attempt and is not done with it.
  bool Involves(uint64_t incarnation) const;
  AttemptKey attempt() const { return {wire_id_, attempt_}; }
  uint64_t decode_incarnation() const { return decode_.incarnation; }  // of the newest attempt; 0: none
  uint64_t prefill_incarnation() const { return prefill_.incarnation; }
  uint64_t lease() const { return decode_.state == Side::kOpen ? lease_ : 0; }  // to be renewed; 0: none
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
  // One of the two workers of an attempt.
  struct Side {
    enum State {
      kNone,      // there is no such worker
      kPromised,  // chosen, knows nothing yet
      kOpen,      // it was told and may hold something
      kOver,
    };
    State state = kNone;
    uint64_t incarnation = 0;
    std::string name;
    absl::Time sent;  // when the request went there
  };

  bool split() const { return prefill_.state != Side::kNone && decode_.state != Side::kNone; }
  bool HasAllFirst() const;
  bool HasAnyFirst() const;
  bool Complete() const;           // every choice is over, and its tokens are with the client
  Side* Find(const Origin& from);  // null: stale
  pb::RequestKey Key() const;
  pb::RouterMessage PrefillMessage(const pb::LeaseGranted* granted, absl::Time now) const;
  int64_t RemainingMs(absl::Time now) const;

  Transition OnFirstToken(const pb::Tokens& tokens, absl::Time now);
  Transition OnDecoded(const pb::Tokens& tokens, absl::Time now);
  int PromptLogprobsDue() const;
  void Emit(int choice, const pb::Tokens& tokens, int skip, Transition& transition);
  Transition ChoiceMissing(const Side& side, absl::Time now, Transition transition);
  Transition FinishedByPrefill(absl::Time now);
  Transition FinishedByDecode(absl::Time now);
  Transition Requeue(Transition transition);

  // How a side is let go; no-ops where it holds nothing.
  void Close(Side& side, Transition& transition);  // it has said so, or is lost
  void Cancel(Side& side, const std::string& why, Transition& transition);
  void Release(Transition& transition);            // D's lease
  void Leave(Side& side, Transition& transition);  // it ends by itself and says so

  Transition Fail(absl::Status status, absl::Time now, Transition transition = {});
  Transition Broken(const Side& side, const std::string& what, absl::Time now);
  void Finish(RequestState state, absl::Status status, absl::Time now, Transition& transition);
  void Mark(const char* event, absl::Time now, const std::string& worker, int64_t amount = 0);

  Submit submit_;
  std::string wire_id_;
  int headroom_tokens_ = 0;
  RequestState state_ = RequestState::kQueued;
  uint64_t arrival_ = 0;
  int attempt_ = 0;
  Side prefill_;
  Side decode_;
  uint64_t lease_ = 0;
  absl::Duration lease_time_;
  bool committed_ = false;     // D has the KV
  bool all_decoded_ = false;   // D has finished
  absl::Status prefill_loss_;  // after token 0, while D may still get the KV
  std::set<uint64_t> never_fits_;

  std::vector<int> emitted_;               // tokens sent to the client, per choice
  std::vector<pb::Tokens> held_;           // of D, from index 1 on, while token 0 is missing; per choice
  std::vector<pb::FinishReason> reasons_;  // per choice
  int cached_tokens_ = 0;
  std::vector<pb::TimelineEvent> timeline_;
  int64_t transfer_bytes_ = 0;  // as committed
  double exposed_transfer_ms_ = 0;
};

}  // namespace sluice::router
