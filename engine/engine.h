// The engine of one rank: sequences, blocks, scheduler, model and sampler as one object that advances by steps.
// Step = plan -> execute -> commit (runner.h). No threads, no clock, no IO: worker/ runs it in a loop.
//
// Promise: the tokens of a request depend on the request alone (docs/architecture.md, "Same bits").
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/block_pool.h"
#include "engine/model/decoder.h"
#include "engine/sampler.h"
#include "engine/scheduler.h"
#include "engine/sequence.h"

namespace sluice::engine {

struct EngineOptions {
  int block_size = 16;
  int num_blocks = 0;      // 0: from max_kv_bytes
  int64_t max_kv_bytes = int64_t{1} << 30;
  int max_context = 0;     // 0: the model's
  SchedulerLimits scheduler;
};

struct EngineRequest {
  uint64_t id = 0;               // unique while the request lives
  int choice = 0;
  std::vector<int32_t> tokens;   // prompt (+ tokens already emitted, on a replay)
  int num_prompt_tokens = 0;
  SamplingParams sampling;
  int priority = 0;
};

// One new token of one request.
struct TokenOutput {
  uint64_t id = 0;
  int choice = 0;
  int index = 0;                 // of the generated tokens, from 0
  Sampled sampled;
  FinishReason finish = FinishReason::kNone;  // != kNone: the request is over and its blocks are free
};

struct EngineStats {
  int blocks_total = 0;
  int blocks_free = 0;
  int running = 0;
  int waiting = 0;
  int64_t waiting_tokens = 0;
  uint64_t steps = 0;
};

class Engine {
 public:
  // `file` and `backend` must outlive the engine.
  static absl::StatusOr<std::unique_ptr<Engine>> Create(const ModelFile& file, const kernels::Backend& backend,
                                                        const EngineOptions& options);
  ~Engine();

  // Reserves the blocks for prompt + max_tokens, or changes nothing: INVALID_ARGUMENT (malformed, or never fits the
  // context), FAILED_PRECONDITION (never fits the pool), RESOURCE_EXHAUSTED (not now).
  absl::Status Add(EngineRequest request);

  // Frees the request's blocks. False if there is none of that id.
  bool Cancel(uint64_t id);

  bool has_work() const;

  // Runs one step; empty when there is no work. An error is the device's: the engine is unusable afterwards.
  absl::StatusOr<std::vector<TokenOutput>> Step();

  EngineStats stats() const;
  int context_length() const;
  const kernels::KvLayout& kv_layout() const;

 private:
  struct Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice::engine
