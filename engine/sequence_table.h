// The sequences that live in an engine and the KV blocks they hold. Pure: no memory of the device, no threads, no
// clock.
//
// Invariant: a sequence holds the blocks for prompt + max_tokens from Add to Remove, so it can always run to its end;
// blocks are held by live sequences only.
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

  // Frees the blocks. False if there is none of that id.
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
