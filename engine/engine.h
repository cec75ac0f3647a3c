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

// How far a sequence of the last step has come: tokens [0, computed) have their KV in its blocks.
struct SequenceProgress {
  uint64_t id = 0;
  int computed = 0;
};

class Engine {
 public:
  // `file` and `backend` must outlive the engine. INVALID_ARGUMENT for options that contradict each other or the model;
  // RESOURCE_EXHAUSTED, naming the bytes, when max_kv_bytes does not hold one full context.
  static absl::StatusOr<std::unique_ptr<Engine>> Create(const ModelFile& file, const kernels::Backend& backend,
                                                        const EngineOptions& options);
  ~Engine();

  // Reserves the blocks of the whole answer (of the tokens given, where the request parks after its first token), or
  // changes nothing: INVALID_ARGUMENT (malformed, an id that is alive, or never fits the context), FAILED_PRECONDITION
  // (never fits the pool), RESOURCE_EXHAUSTED (not now).
  absl::Status Add(EngineRequest request);

  // Frees the request's blocks, in any state. False if there is none of that id.
  bool Cancel(uint64_t id);

  // Stops computing the request but keeps its blocks, for whoever still reads them, until Cancel. False if there is
  // none of that id.
  bool Park(uint64_t id);

  // An awaiting request has its KV, written through kv_layer_data, and `first_token`: it yields the tokens from there
  // on. As SequenceTable::Activate.
  absl::Status Activate(uint64_t id, int32_t first_token);

  // The blocks of a request, ids in the pool: block i holds the tokens [i * block_size, (i + 1) * block_size). Empty
  // if there is none of that id.
  std::vector<int32_t> BlocksOf(uint64_t id) const;

  // Something can be computed: awaiting and parked requests alone are no work.
  bool has_work() const;

  // Runs one step; empty when there is no work. An error is the device's: the engine is unusable afterwards.
  absl::StatusOr<std::vector<TokenOutput>> Step();

  // Every sequence that the last Step computed tokens of.
  const std::vector<SequenceProgress>& progress() const;

  EngineStats stats() const;
  int context_length() const;
  const kernels::KvLayout& kv_layout() const;

  // Start of a layer's region of stats().blocks_total blocks (kernels/kv_layout.h), in the backend's memory. Blocks
  // that nothing computes (of awaiting and parked requests, finished blocks of running ones) may be used by other
  // threads.
  void* kv_layer_data(int layer);

 private:
  struct Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice::engine
