// The sequences that live in an engine and the KV blocks they hold. Pure: no memory of the device, no threads, no
// clock.
//
// Invariants: a sequence holds all its blocks from Add to Remove, so it can always run to its end: those of prompt +
// max_tokens, or, where it parks after its first token, of the tokens given. Blocks are held by live sequences only.
// The scheduler knows exactly the sequences that neither await their KV nor are parked.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "engine/block_pool.h"
#include "engine/sampling_params.h"
#include "engine/scheduler.h"
#include "engine/sequence.h"

namespace sluice::engine {

struct EngineRequest {
  uint64_t id = 0;  // unique while the request lives
  int choice = 0;
  std::vector<int32_t> tokens;  // prompt (+ tokens already emitted, on a replay)
  int num_prompt_tokens = 0;
  SamplingParams sampling;
  int priority = 0;
  // The two halves of an answer that is split between engines; at most one of them.
  bool park_after_first = false;  // compute `tokens`, yield one token, keep the blocks until Remove
  bool awaiting_kv = false;       // hold the blocks; the KV of `tokens` is written from outside, then Activate
};

struct SequenceLimits {
  int block_size = 16;
  int num_blocks = 0;
  int max_context = 0;  // tokens of a sequence, prompt and answer
  int vocab = 0;
};

class SequenceTable {
 public:
  SequenceTable(const SequenceLimits& limits, const SchedulerLimits& scheduler);

  // All or nothing. INVALID_ARGUMENT: malformed, or prompt + max_tokens exceed the context. FAILED_PRECONDITION: more
  // blocks than the pool has. RESOURCE_EXHAUSTED: more blocks than are free now.
  absl::Status Add(EngineRequest request);

  // Takes the sequence off the schedule for good; it keeps its blocks. False if there is none of that id.
  bool Park(uint64_t id);

  // The KV of the tokens given is in the blocks and `first_token` follows them: the sequence runs from here on.
  // NOT_FOUND, FAILED_PRECONDITION (it awaits nothing) or INVALID_ARGUMENT (not a token, or it leaves nothing to
  // generate); nothing has changed then.
  absl::Status Activate(uint64_t id, int32_t first_token);

  // What follows from a new token: the sequence goes on, parks, or, where it is over, is removed.
  void Settle(uint64_t id, bool over);

  // Null if there is none of that id. Valid until Remove.
  const Sequence* Find(uint64_t id) const;

  // Frees the blocks, in any state. False if there is none of that id.
  bool Remove(uint64_t id);

  bool empty() const { return sequences_.empty(); }
  const Scheduler& scheduler() const { return scheduler_; }
  const BlockPool& blocks() const { return blocks_; }
  const SequenceLimits& limits() const { return limits_; }

 private:
  absl::Status CheckShape(const EngineRequest& request) const;

  SequenceLimits limits_;
  BlockPool blocks_;
  Scheduler scheduler_;
  std::map<uint64_t, std::unique_ptr<Sequence>> sequences_;
  uint64_t arrivals_ = 0;
};

}  // namespace sluice::engine
