// The requests that live in an engine: admission, their sequences (one a choice), and what follows from new tokens. Pure:
// no memory of the device, no threads, no clock.
//
// Admission promises blocks. A request is refused where what is FREE, less what others were promised and do not hold
// yet, is less than it needs: so by default nobody is ever preempted for lack of blocks. Who may wait (`may_wait`) is
// admitted on top of that; then the scheduler preempts.
//
// Invariants: blocks are held by live sequences only; the scheduler knows exactly the sequences that neither await their
// KV nor are parked; a request lives until the last of its choices is over, or, where it parks, until Remove.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "engine/kv_blocks.h"
#include "engine/sampling_params.h"
#include "engine/scheduler.h"
#include "engine/sequence.h"

namespace sluice::engine {

struct EngineRequest {
  uint64_t id = 0;  // unique while the request lives
  int choice = 0;   // of the first of its `n` answers
  int n = 1;        // answers to one prompt, which they share; choices [choice, choice + n)
  std::vector<int32_t> tokens;  // prompt (+ tokens already emitted, on a replay of a single answer)
  int num_prompt_tokens = 0;
  SamplingParams sampling;
  int prompt_logprobs = -1;  // alternatives per prompt token, reported with the first new token; -1: none
  int priority = 0;          // lower runs first
  std::string adapter;
  std::string cache_salt;     // requests of different salts never share cached blocks
  bool may_wait = false;      // waits for blocks instead of being refused
  int headroom_tokens = 0;    // blocks are promised for `tokens` and that many more; 0: for the whole answer
  // The two halves of an answer that is split between engines; at most one of them.
  bool park_after_first = false;  // compute `tokens`, yield one token a choice, keep the blocks until Remove
  bool awaiting_kv = false;       // hold the blocks; the KV of `tokens` is written from outside, then Activate
};

// The token that follows the prompt in one choice.
struct FirstToken {
  int choice = 0;
  int32_t token = 0;
};

struct SequenceLimits {
  int block_size = 16;
  int num_blocks = 0;
  int max_context = 0;  // tokens of a sequence, prompt and answer
  int vocab = 0;
  bool prefix_caching = true;
  std::string model_hash, numerics;  // what cached KV depends on besides tokens, adapter and salt
};

using DrafterFactory = std::function<std::unique_ptr<Drafter>()>;

class SequenceTable {
 public:
  // `new_drafter` may be empty: no drafts.
  SequenceTable(const SequenceLimits& limits, const SchedulerLimits& scheduler, DrafterFactory new_drafter = {});

  // All or nothing. INVALID_ARGUMENT: malformed, or prompt + max_tokens exceed the context. FAILED_PRECONDITION: more
  // blocks than the pool has, for one choice or, unless it may wait, for all of them together. RESOURCE_EXHAUSTED: more
  // blocks than are free now.
  absl::Status Add(EngineRequest request);

  // Takes the request off the schedule for good; it keeps its blocks. False if there is none of that id.
  bool Park(uint64_t id);

  // The KV of the tokens given is in the blocks and a first token of each choice that goes on follows them: they run
  // from here on. NOT_FOUND, FAILED_PRECONDITION (it awaits nothing) or INVALID_ARGUMENT (not its choices, not tokens, or
  // they leave nothing to generate); nothing has changed then.
  absl::Status Activate(uint64_t id, std::span<const FirstToken> firsts);

  // The first choice of the request, null if there is none of that id. Valid until Remove.
  const Sequence* Find(uint64_t id) const;

  // Frees the blocks, in any state. False if there is none of that id.
  bool Remove(uint64_t id);

  // For the commit of a step.
  void Fork(Sequence& parent, std::span<const int32_t> tokens);  // tokens[i] is the first of parent.siblings[i]
  void ParkSequence(Sequence& s);
  bool Finish(Sequence& s);  // true: that was the last choice, the request is gone
  bool FinishChoice(uint64_t id, int choice);

  bool empty() const { return requests_.empty(); }
  Scheduler& scheduler() { return scheduler_; }
  const Scheduler& scheduler() const { return scheduler_; }
  KvBlocks& kv() { return kv_; }
  const KvBlocks& kv() const { return kv_; }
  const SequenceLimits& limits() const { return limits_; }

  // FREE less what was promised and is not held yet.
  int unpromised_blocks() const;

 private:
  struct Request {
    std::vector<std::shared_ptr<Sequence>> live;  // by choice; those that are over are gone
  };

  absl::Status CheckShape(const EngineRequest& request) const;
  absl::Status CheckBlocks(const EngineRequest& request, int64_t* needed) const;
  std::shared_ptr<Sequence> NewSequence(EngineRequest& request, int needed);
  std::shared_ptr<Sequence> NewSibling(const Sequence& parent, std::shared_ptr<SampleState> sample);
  void Drop(Sequence& s);

  const SequenceLimits limits_;
  const SchedulerLimits scheduler_limits_;
  const DrafterFactory new_drafter_;
  KvBlocks kv_;
  Scheduler scheduler_;
  std::map<uint64_t, Request> requests_;
  uint64_t arrivals_ = 0;
};

}  // namespace sluice::engine
