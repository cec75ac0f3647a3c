// Decides which tokens the next step computes, and who gives way when blocks are short. Pure: no threads, clock or IO.
//
// Policy. A plan has a budget of tokens, sequences and rows of logits.
//  1. Sequences that need one token (decode rows) go first, the least recently planned first where not all fit; drafts
//     ride along when blocks and budget are left over.
//  2. Then chunks of prompts that are under way, then waiting ones are admitted: first come first served within a
//     priority (lower numbers first). One that does not fit lets nobody behind it pass. Beside decode rows chunks are
//     cut to `max_chunk_tokens_beside_decode` in all, so that a step's length does not depend on what arrives.
//  3. A sequence is admitted with the blocks of all its tokens: nothing holds and waits. Decode rows take more blocks one
//     by one; when none is left, the lowest-ranked running sequence below the one in need gives all its blocks back and
//     waits (recompute). An arrival takes blocks and places of running ones only where its priority is strictly better.
//
// Progress: the best-ranked sequence is never preempted and can preempt all others, and each sequence alone fits (the
// caller refuses what cannot); so it ends, and by induction all do. Who waited for `starvation_plans` plans runs before
// all that did not, for good: so the wait is bounded by that and the sequences that starved earlier.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/kv_blocks.h"
#include "engine/sequence.h"

namespace sluice::engine {

struct SchedulerLimits {
  int max_step_tokens = 512;  // rows of a step
  int max_step_seqs = 64;     // sequences of a step, and of those that run
  int max_step_logits = 0;    // rows of logits; 0: as many as sequences. Never less than that
  int max_chunk_tokens_beside_decode = 0;  // 0: no cap but the budget
  int max_drafts = 0;                      // per sequence and step
  int starvation_plans = 1000;
};

// A range of one sequence's tokens in a step, then drafts for the tokens after it.
struct Chunk {
  std::shared_ptr<Sequence> sequence;
  int begin = 0;  // first token of the range
  int count = 0;  // > 0, without drafts
  std::vector<int32_t> drafts;
  int score_begin = 0;    // tokens [score_begin, score_begin + scores) of the range score the prompt token after them
  int scores = 0;
  bool samples = false;   // the range ends at the last token, so the step yields the next one
  bool forks = false;       // it is the first that samples, for the sequence's siblings too
  uint32_t recomputes = 0;  // the sequence's when it was planned

  int rows() const { return count + int(drafts.size()); }
  int logits() const { return scores + (samples ? 1 + int(drafts.size()) : 0); }
};

struct StepPlan {
  std::vector<BlockCopy> copies;  // before everything else
  std::vector<Chunk> chunks;      // decode rows first
  bool empty() const { return chunks.empty(); }
};

class Scheduler {
 public:
  // `kv` must outlive the scheduler.
  Scheduler(const SchedulerLimits& limits, KvBlocks* kv);

  void AddWaiting(std::shared_ptr<Sequence> sequence);  // REQUIRES: holds no blocks
  void AddRunning(std::shared_ptr<Sequence> sequence);  // REQUIRES: holds those of its tokens
  void Remove(const Sequence* sequence);                // no-op if it isn't there; its blocks are the caller's

  // For the drafters of the sequences that run.
  void set_draft_row_cost(double row_cost);

  // Overrides max_chunk_tokens_beside_decode for the plans to come.
  void set_chunk_tokens_beside_decode(int tokens) { limits_.max_chunk_tokens_beside_decode = tokens; }

  // Marks what it hands out as scheduled.
  StepPlan Plan();

  bool empty() const { return waiting_.empty() && running_.empty(); }
  int running() const { return int(running_.size()); }
  int waiting() const { return int(waiting_.size()); }
  int64_t waiting_tokens() const;  // tokens of prompts and recomputes that are not handed out yet
  int promised_blocks() const;     // blocks of the waiting ones, as if nothing of them were cached
  uint64_t preemptions() const { return preemptions_; }
  uint64_t drafted() const { return drafted_; }

 private:
  struct Budget {
    int tokens, seqs, logits, chunk_tokens;
  };
  using List = std::vector<std::shared_ptr<Sequence>>;

  void PromoteStarved();
  void PreemptForPriority();
  void PlanDecodeRows(StepPlan& plan, Budget& budget);
  void PlanDrafts(StepPlan& plan, Budget& budget);
  void PlanChunks(StepPlan& plan, Budget& budget);
  void PlanChunk(const std::shared_ptr<Sequence>& s, StepPlan& plan, Budget& budget);
  void PlanArrivals(StepPlan& plan, Budget& budget);
  bool SlotFor(const Sequence& s) const;
  bool AdmitFirst();
  int Watermark() const { return int(running_.size()); }
  bool MakeRoom(const Sequence& s, int end);
  void Preempt(size_t index);  // in running_
  void Take(Chunk chunk, StepPlan& plan, Budget& budget);

  SchedulerLimits limits_;
  KvBlocks* const kv_;
  List waiting_, running_;  // by rank
  uint64_t plans_ = 0;
  uint64_t preemptions_ = 0;
  uint64_t drafted_ = 0;
};

}  // namespace sluice::engine
