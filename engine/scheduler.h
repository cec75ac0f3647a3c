// Decides which tokens the next step computes. Pure: no threads, clock or IO.
//
// Policy: a step has a token budget. Sequences that need one token (decode rows) go first, then chunks of the others,
// first come first served within a priority (lower first). Until preemption exists a sequence holds the blocks for
// prompt + max_tokens from its admission on, so nothing holds and waits.
#pragma once

#include <vector>

#include "engine/sequence.h"

namespace sluice::engine {

struct SchedulerLimits {
  int max_step_tokens = 512;  // rows of a step
  int max_step_seqs = 64;     // sequences of a step
};

struct Chunk {
  Sequence* sequence = nullptr;
  int begin = 0;         // first token of the range: sequence->computed
  int count = 0;         // > 0
  bool samples = false;  // the range ends at the last token, so the step yields the next one
};

using StepPlan = std::vector<Chunk>;

class Scheduler {
 public:
  explicit Scheduler(const SchedulerLimits& limits);

  void Add(Sequence* sequence);     // does not own; removed before it dies
  void Remove(Sequence* sequence);  // no-op if it isn't there
  bool empty() const { return sequences_.empty(); }

  // Decode rows first, then chunks; rows of a sequence are consecutive. Empty when nothing is to do.
  StepPlan Plan() const;

  int running() const;             // sequences that have computed something
  int waiting() const;             // sequences that have not
  int64_t waiting_tokens() const;  // tokens not computed yet, of all sequences

 private:
  SchedulerLimits limits_;
  std::vector<Sequence*> sequences_;  // by (priority, arrival)
};

}  // namespace sluice::engine
