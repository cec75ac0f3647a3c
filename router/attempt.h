// One attempt at a request, on a decode worker D and a prefill worker P, as an explicit state machine. Pure.
//
//   reserved ──granted, Prefill to P──▶ prefilling ──first tokens from P──▶ handing_off ──Committed from D──▶ decoding
//
// It covers some choices of the request: all of them where nothing has been emitted, or one choice, which it continues.
// The attempt ends with an outcome:
//   complete   each of its choices is over: by the word of the worker that has it, or by a stop string found here.
//              Some may be over with their first token, which P says, while the others go on at D
//   refused    by a worker that has nothing of it; another one, or a later moment, may do
//   failed     by an error of either worker or its loss; `may_move` tells whether another attempt makes sense
//
// D is a decode worker and P a prefill worker. A worker of role `both`, or a decode worker that computes the prompt
// itself, is D without P: `reserved` leads to `decoding` as soon as the lease is granted. An answer of one token needs
// no D: it begins as `prefilling`.
//
// Nothing is assumed about the order of what P and D say: D's Committed, its tokens and even its Finished may come
// before P's first token and are held until then. Invariants:
//  - the request's answer is the truth: tokens are emitted consecutively, each once;
//  - an event of another attempt or incarnation, or of a worker that is done with the attempt, changes nothing;
//  - it ends exactly once: one step carries `outcome`, and none does after it;
//  - every worker that was told of it is let go exactly once: it is in `freed` or in `leaving` of one step.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "router/request_record.h"

namespace sluice::router {

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

struct AttemptOutcome {
  enum Kind { kComplete, kRefused, kFailed };
  Kind kind = kComplete;
  absl::Status why;              // of kFailed
  bool may_move = false;         // of kFailed: another attempt makes sense
  uint64_t never_fits = 0;       // of kRefused: whom it will never fit
  std::vector<uint64_t> blamed;  // of kFailed: workers that had a part in it
};

struct AttemptStep {
  bool ignored = false;              // stale or repeated: nothing changed
  std::vector<pb::Tokens> tokens;    // for the client
  std::vector<ToWorker> to_workers;  // Prefill, Cancel, Release
  std::vector<uint64_t> leaving;     // workers that still hold something of it and will say when they don't
  std::vector<uint64_t> freed;       // workers that hold nothing of it any more
  std::optional<AttemptOutcome> outcome;
};

class Attempt {
 public:
  enum class State { kReserved, kPrefilling, kHandingOff, kDecoding, kOver };

  // Of choices [first, first + count). Start gives the message for D, or for P where there is no D.
  Attempt(RequestRecord& record, int number, int first, int count, const Assignment& assignment);
  ToWorker Start(absl::Time now);

  AttemptStep OnGranted(const Origin& from, const pb::LeaseGranted& granted, absl::Time now);
  AttemptStep OnRefused(const Origin& from, const pb::Refused& refused);
  AttemptStep OnTokens(const Origin& from, const pb::Tokens& tokens, absl::Time now);
  AttemptStep OnCommitted(const Origin& from, const pb::Committed& committed, absl::Time now);
  AttemptStep OnFinished(const Origin& from, const pb::Finished& finished);
  AttemptStep OnFailed(const Origin& from, const pb::Failed& failed);
  AttemptStep OnProgress(const Origin& from, const pb::Progress& progress, absl::Time now);

  AttemptStep OnWorkerLost(uint64_t incarnation, const std::string& why);
  // Whatever it is about, nobody wants it any more. No outcome: who says this knows it.
  AttemptStep Abandon(const std::string& why);

  static const char* Name(State state);
  State state() const { return state_; }
  bool over() const { return state_ == State::kOver; }
  int number() const { return number_; }
  // The worker is to serve it and is not done with it.
  bool Involves(uint64_t incarnation) const;
  uint64_t decode_incarnation() const { return decode_.incarnation; }  // 0: none
  uint64_t prefill_incarnation() const { return prefill_.incarnation; }
  uint64_t lease() const { return decode_.state == Side::kOpen ? lease_ : 0; }  // to be renewed; 0: none
  absl::Duration lease_time() const { return lease_time_; }
  const std::string& last_worker() const { return decode_.state == Side::kNone ? prefill_.name : decode_.name; }

 private:
  // One of its two workers.
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
    absl::Time sent;  // when the attempt went there
  };

  bool split() const { return prefill_.state != Side::kNone && decode_.state != Side::kNone; }
  bool Mine(int choice) const { return choice >= first_ && choice < first_ + int(held_.size()); }
  // Of D, beyond the first token, while that is missing.
  struct Held {
    pb::Tokens tokens;
    pb::FinishReason reason = pb::FINISH_REASON_UNSPECIFIED;
  };
  Held& HeldOf(int choice) { return held_[size_t(choice - first_)]; }
  bool HasFirst(int choice) const { return answer().emitted(choice) > base_; }
  bool HasAllFirst() const;
  bool HasAnyFirst() const;
  bool Complete() const;           // every choice is over, and its tokens are with the client
  Side* Find(const Origin& from);  // null: stale
  const Answer& answer() const { return record_->answer; }

  pb::RequestKey Key() const;
  pb::RouterMessage PrefillMessage(const pb::LeaseGranted* granted, absl::Time now) const;
  int64_t RemainingMs(absl::Time now) const;
  int PromptLogprobsDue() const;

  AttemptStep OnFirstToken(const pb::Tokens& tokens, absl::Time now);
  AttemptStep OnDecoded(const pb::Tokens& tokens, absl::Time now);
  AttemptStep FinishedByPrefill();
  AttemptStep FinishedByDecode();
  AttemptStep ChoiceMissing(const Side& side, AttemptStep step);
  AttemptStep ReleaseAll(AttemptStep step);

  // How a side is let go; no-ops where it holds nothing.
  void Close(Side& side, AttemptStep& step);  // it has said so, or is lost
  void Cancel(Side& side, const std::string& why, AttemptStep& step);
  void Release(AttemptStep& step);            // D's lease
  void Leave(Side& side, AttemptStep& step);  // it ends by itself and says so

  AttemptStep Fail(absl::Status why, bool may_move, const Side& blamed, AttemptStep step = {});
  AttemptStep Broken(const Side& side, const std::string& what);
  AttemptStep Done(AttemptStep step);

  RequestRecord* record_;
  int number_;
  int first_;
  int base_;  // tokens that were emitted before, of each of its choices
  State state_ = State::kReserved;
  Side prefill_;
  Side decode_;
  uint64_t lease_ = 0;
  absl::Duration lease_time_;
  int prompt_tokens_ = 0;      // that are to be computed: the prompt, and what was emitted before
  bool committed_ = false;     // D has the KV
  bool all_decoded_ = false;   // D has finished
  absl::Status prefill_loss_;  // after the first tokens, while D may still get the KV
  std::vector<Held> held_;     // per choice
};

}  // namespace sluice::router
