// The engine of one rank: sequences, blocks, scheduler, model and sampler as one object that advances by steps.
// Step = plan -> execute -> commit (runner/runner.h). No threads, no clock, no IO: worker/ runs it in a loop.
//
// Promise: the tokens of a request depend on the request alone (docs/architecture.md, "Same bits").
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/files/model_file.h"
#include "engine/runner/commit.h"
#include "engine/scheduler.h"
#include "engine/sequence_table.h"
#include "kernels/backend.h"

namespace sluice::engine {

struct EngineOptions {
  int block_size = 16;
  int num_blocks = 0;  // 0: from max_kv_bytes
  int64_t max_kv_bytes = int64_t{1} << 30;
  int max_context = 0;  // 0: the model's; never more than that
  SchedulerLimits scheduler;
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
  // `file` and `backend` must outlive the engine. INVALID_ARGUMENT for options that contradict each other or the model;
  // RESOURCE_EXHAUSTED, naming the bytes, when max_kv_bytes does not hold one full context.
  static absl::StatusOr<std::unique_ptr<Engine>> Create(const ModelFile& file, const kernels::Backend& backend,
                                                        const EngineOptions& options);
  ~Engine();

  // Reserves the blocks for prompt + max_tokens, or changes nothing: INVALID_ARGUMENT (malformed, an id that is alive,
  // or never fits the context), FAILED_PRECONDITION (never fits the pool), RESOURCE_EXHAUSTED (not now).
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
