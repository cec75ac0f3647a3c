// The engine of one rank: sequences, blocks, scheduler, model and sampler as one object that advances by steps.
// Step = plan -> execute -> commit (runner/step.h). No threads, no clock, no IO: worker/ runs it in a loop.
//
// Promise: the tokens of a request depend on the request alone (docs/architecture.md, "Same bits").
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/files/model_file.h"
#include "engine/runner/commit.h"
#include "engine/runner/profile.h"
#include "engine/runner/sample_rows.h"
#include "engine/runner/step.h"
#include "engine/scheduler.h"
#include "engine/sequence_table.h"
#include "kernels/backend.h"

namespace sluice::engine {

struct EngineOptions {
  int block_size = 16;
  int num_blocks = 0;  // 0: from max_kv_bytes
  int64_t max_kv_bytes = int64_t{1} << 30;
  // > 0: this share of the memory that a device has left after the weights, instead of max_kv_bytes; where the backend
  // has memory of its own.
  double device_memory_share = 0;
  int max_context = 0;  // 0: the model's; never more than that
  SchedulerLimits scheduler;
  bool prefix_caching = false;
  std::string packed_folder;   // keeps packed weights for other processes (model/weights.h); empty: in memory
  std::string model_hash;      // of cached prefixes; engines of different models never meet, so it may be empty
  DrafterFactory new_drafter;  // one a sequence; empty: no drafts. See also scheduler.max_drafts
  DraftRule draft_rule = DraftRule::kEquality;
  bool device_sampling = true;  // where the backend can: it brings tokens to the host instead of logits. No bit changes
  double step_target_seconds = 0;   // of steps with decode rows: prompts beside them are cut to fit; 0: they are not
  std::function<double()> seconds;  // a clock, for statistics, for how many drafts pay and the target; may be empty
  // Of an instance of several ranks: this is rank 0, the others follow (parallel/follower.h), with the same KV
  // pool. Both outlive the engine; null for one rank.
  kernels::Collective* collective = nullptr;
  std::byte* kv_memory = nullptr;  // as Backend::NewKvPool's
};

// Counts are since the start.
struct EngineStats {
  int blocks_total = 0;
  int blocks_free = 0;  // free or evictable, and promised to nobody
  int running = 0;
  int waiting = 0;
  int64_t waiting_tokens = 0;  // of prompts and recomputes, not computed yet
  uint64_t steps = 0;
  uint64_t rows = 0;
  uint64_t steps_ahead = 0;  // planned while the one before was under way
  uint64_t preemptions = 0;
  uint64_t block_copies = 0;
  PrefixCacheStats prefix;
  int cached_blocks = 0;
  uint64_t drafted = 0;
  uint64_t accepted_drafts = 0;
  int64_t bytes_to_host = 0;           // logits, tokens and log-probabilities that a device brought
  int chunk_tokens_beside_decode = 0;  // what the step target allows now; 0 without one
  double draft_row_cost = 0;           // what one more row adds now, as a share of a step; 0 where nothing is learned
  double plan_seconds = 0, execute_seconds = 0, sample_seconds = 0, commit_seconds = 0;  // sample is part of execute
};

class Engine {
 public:
  // `file` and `backend` must outlive the engine. INVALID_ARGUMENT for options that contradict each other or the model;
  // RESOURCE_EXHAUSTED, naming the bytes, when max_kv_bytes does not hold one full context.
  static absl::StatusOr<std::unique_ptr<Engine>> Create(const ModelFile& file, const kernels::Backend& backend,
                                                        const EngineOptions& options);
  ~Engine();

  // How fast it is, by steps of its own that leave no trace but in blocks that nobody has (runner/profile.h). Nothing
  // without a clock. REQUIRES: nothing was added yet. An error is the device's, as of Step.
  absl::StatusOr<EngineProfile> Profile(double seconds);

  // Reserves the blocks of the whole answer (of the tokens given, where the request parks after its first token), or
  // changes nothing: INVALID_ARGUMENT (malformed, an id that is alive, or never fits the context), FAILED_PRECONDITION
  // (never fits the pool), RESOURCE_EXHAUSTED (not now).
  absl::Status Add(EngineRequest request);

  // Frees the request's blocks, in any state. False if there is none of that id.
  bool Cancel(uint64_t id);

  // Stops computing the request but keeps its blocks, for whoever still reads them, until Cancel. False if there is
  // none of that id.
  bool Park(uint64_t id);

  // An awaiting request has its KV, written through kv_layer_data, and the first token of each choice that goes on: it
  // yields the tokens from there on. As SequenceTable::Activate.
  absl::Status Activate(uint64_t id, std::span<const FirstToken> firsts);
  absl::Status Activate(uint64_t id, int32_t first_token);  // of its only choice

  // Of an admitted request: how many of its tokens were found in the prefix cache. 0 if there is none of that id.
  int CachedTokensOf(uint64_t id) const;

  // What the prefix cache stored and removed, for routers.
  const PrefixCache& prefix_cache() const;

  // The blocks of a request, ids in the pool: block i holds the tokens [i * block_size, (i + 1) * block_size). Empty
  // if there is none of that id, and while it waits. An awaiting request has all of its tokens' from Add on, one that
  // parks from its first progress on; they stay until Cancel.
  std::vector<int32_t> BlocksOf(uint64_t id) const;

  // Something is to be computed: awaiting and parked requests alone are no work. A step may still be empty, where all
  // that waits waits for blocks.
  bool has_work() const;

  // Runs one step; empty when nothing can be computed. An error is the device's: the engine is unusable afterwards.
  absl::StatusOr<std::vector<TokenOutput>> Step();

  // The parts of a step, so that the next one is planned, and the one before committed, while one executes. Begin and
  // Commit belong to the engine's thread like everything above; Execute may run in another one at the same time. Steps
  // execute and commit in the order in which they began; at most kMaxStepsUnderWay have begun and are not committed.
  // Null when nothing can be planned now.
  static constexpr int kMaxStepsUnderWay = 2;
  std::unique_ptr<StepWork> Begin();
  absl::Status Execute(StepWork& step);
  std::vector<TokenOutput> Commit(std::unique_ptr<StepWork> step);
  int steps_under_way() const;

  // Every sequence that the last committed step computed tokens of.
  const std::vector<SequenceProgress>& progress() const;

  EngineStats stats() const;
  int context_length() const;
  const kernels::KvLayout& kv_layout() const;

  // Start of a layer's region of stats().blocks_total blocks (kernels/kv_layout.h), in the backend's memory. Blocks
  // that nothing computes (of awaiting and parked requests, finished blocks of running ones) may be used by other
  // threads.
  void* kv_layer_data(int layer);
  kernels::DeviceKv* kv_device();  // null: the pool is in host memory

 private:
  struct Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice::engine
