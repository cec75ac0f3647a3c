#include "engine/scheduler.h"

#include <glog/logging.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "kernels/kv_layout.h"

namespace sluice::engine {
namespace {

using SequencePtr = std::shared_ptr<Sequence>;

bool RanksBefore(const SequencePtr& a, const SequencePtr& b) {
  const auto rank = [](const Sequence& s) { return std::tuple(!s.starved, s.priority, s.arrival, s.choice); };
  return rank(*a) < rank(*b);
}

void Insert(std::vector<SequencePtr>& list, SequencePtr sequence) {
  list.insert(std::upper_bound(list.begin(), list.end(), sequence, RanksBefore), std::move(sequence));
}

int Slots(const Sequence& s) {
  return 1 + int(s.siblings.size());
}

bool IsDecodeRow(const Sequence& s) {
  return s.remaining() == 1 && !s.complete();
}

// A drafter needs every token before its guess.
bool WaitsForItsToken(const Sequence& s) {
  return s.pending > 0 && s.drafter != nullptr && s.drafter->active(s.total());
}

// The rows of a range that score prompt tokens.
void SetScores(Chunk& c) {
  const Sequence& s = *c.sequence;
  if (s.prompt_logprobs < 0) return;
  c.score_begin = std::max(c.begin, int(s.scored.size()));
  c.scores = std::max(std::min(c.begin + c.count, s.num_prompt_tokens - 1) - c.score_begin, 0);
}

}  // namespace

Scheduler::Scheduler(const SchedulerLimits& limits, KvBlocks* kv) : limits_(limits), kv_(kv) {
  CHECK_GT(limits_.max_step_tokens, 0);
  CHECK_GT(limits_.max_step_seqs, 0);
}

void Scheduler::AddWaiting(SequencePtr s) {
  CHECK(s->blocks.empty());
  s->waiting_since = plans_;
  Insert(waiting_, std::move(s));
}

void Scheduler::AddRunning(SequencePtr s) {
  Insert(running_, std::move(s));
}

void Scheduler::Remove(const Sequence* sequence) {
  const auto is_it = [&](const SequencePtr& s) { return s.get() == sequence; };
  std::erase_if(waiting_, is_it);
  std::erase_if(running_, is_it);
}

void Scheduler::set_draft_row_cost(double row_cost) {
  for (const SequencePtr& s : running_) {
    if (s->drafter != nullptr) s->drafter->set_row_cost(row_cost);
  }
}

StepPlan Scheduler::Plan() {
  ++plans_;
  PromoteStarved();
  PreemptForPriority();
  Budget budget{.tokens = limits_.max_step_tokens,
                .seqs = limits_.max_step_seqs,
                .logits = std::max(limits_.max_step_logits, limits_.max_step_seqs),
                .chunk_tokens = limits_.max_step_tokens};
  StepPlan plan;
  PlanDecodeRows(plan, budget);
  if (!plan.empty() && limits_.max_chunk_tokens_beside_decode > 0) {
    budget.chunk_tokens = limits_.max_chunk_tokens_beside_decode;
  }
  PlanDrafts(plan, budget);
  PlanChunks(plan, budget);
  PlanArrivals(plan, budget);
  return plan;
}

void Scheduler::PromoteStarved() {
  bool changed = false;
  for (const SequencePtr& s : waiting_) {
    if (s->starved || plans_ - s->waiting_since <= uint64_t(limits_.starvation_plans)) continue;
    s->starved = changed = true;
  }
  if (changed) std::stable_sort(waiting_.begin(), waiting_.end(), RanksBefore);
}

bool Scheduler::SlotFor(const Sequence& s) const {
  int used = Slots(s);
  for (const SequencePtr& other : running_) used += Slots(*other);
  return used <= limits_.max_step_seqs;
}

// Takes from the lowest-ranked of strictly worse priority, one after the other, until the best arrival fits.
void Scheduler::PreemptForPriority() {
  if (waiting_.empty()) return;
  const Sequence& first = *waiting_.front();
  const int needed = kernels::BlocksFor(first.total(), kv_->block_size());
  while (!SlotFor(first) || needed + Watermark() > kv_->free() + kv_->returning()) {
    size_t i = running_.size();
    while (i > 0 && running_[i - 1]->park_after_first) --i;
    if (i == 0 || running_[i - 1]->starved || running_[i - 1]->priority <= first.priority) return;
    Preempt(i - 1);
    if (waiting_.front().get() != &first) return;
  }
}

void Scheduler::Preempt(size_t index) {
  SequencePtr s = running_[index];
  running_.erase(running_.begin() + int64_t(index));
  kv_->Release(*s);
  ++s->recomputes;
  s->verifying = false;
  ++preemptions_;
  AddWaiting(std::move(s));
}

// Who is needed by others outside (park_after_first: a transfer reads its blocks) or has its place in this plan keeps
// its blocks.
bool Scheduler::MakeRoom(const Sequence& s, int end) {
  for (;;) {
    const int needed = kv_->NeededToExtend(s, end);
    if (needed <= kv_->free()) return true;
    if (needed <= kv_->free() + kv_->returning()) return false;  // with the end of the step under way
    size_t i = running_.size();
    while (i > 0 && running_[i - 1].get() != &s &&
           (running_[i - 1]->park_after_first || running_[i - 1]->last_planned == plans_)) {
      --i;
    }
    if (i == 0 || running_[i - 1].get() == &s) return false;
    Preempt(i - 1);
  }
}

void Scheduler::PlanDecodeRows(StepPlan& plan, Budget& budget) {
  List rows;
  std::copy_if(running_.begin(), running_.end(), std::back_inserter(rows),
               [](const SequencePtr& s) { return IsDecodeRow(*s) && !WaitsForItsToken(*s); });
  const size_t most = size_t(std::min({budget.tokens, budget.seqs, budget.logits}));
  if (rows.size() > most) {
    std::stable_sort(rows.begin(), rows.end(),
                     [](const SequencePtr& a, const SequencePtr& b) { return a->last_planned < b->last_planned; });
  }
  for (const SequencePtr& s : rows) {
    if (plan.chunks.size() == most) return;
    if (s->blocks.empty()) continue;  // preempted for one before it
    const int end = s->scheduled + 1;
    if (!MakeRoom(*s, end)) continue;
    CHECK(kv_->Extend(*s, end, plan.copies));
    Chunk c{.sequence = s, .begin = s->scheduled, .count = 1, .samples = true};
    Take(std::move(c), plan, budget);
  }
}

// Drafts take what is left over: no block that somebody running will need next, nobody's place.
void Scheduler::PlanDrafts(StepPlan& plan, Budget& budget) {
  if (limits_.max_drafts == 0) return;
  for (Chunk& c : plan.chunks) {
    Sequence& s = *c.sequence;
    if (s.drafter == nullptr || !s.drafter->active(int(s.tokens.size())) || s.total() != int(s.tokens.size()) + 1) continue;
    const int left = s.sampling().max_tokens - s.generated() - 1;
    const int limit = std::min({limits_.max_drafts, budget.tokens, budget.logits, left});
    if (limit <= 0) continue;
    std::vector<int32_t> drafts = s.drafter->Propose(s.tokens, limit);
    CHECK_LE(int(drafts.size()), limit);
    if (drafts.empty()) continue;
    const int end = s.scheduled + int(drafts.size());
    if (kv_->NeededToExtend(s, end) + Watermark() > kv_->free()) continue;
    CHECK(kv_->Extend(s, end, plan.copies));
    budget.tokens -= int(drafts.size());
    budget.logits -= int(drafts.size());
    drafted_ += drafts.size();
    s.verifying = true;
    c.drafts = std::move(drafts);
  }
}

void Scheduler::PlanChunks(StepPlan& plan, Budget& budget) {
  for (const SequencePtr& s : running_) {
    if (s->last_planned != plans_ && s->remaining() > 0 && !IsDecodeRow(*s)) PlanChunk(s, plan, budget);
  }
}

void Scheduler::PlanChunk(const SequencePtr& s, StepPlan& plan, Budget& budget) {
  if (budget.seqs == 0 || s->complete() || WaitsForItsToken(*s)) return;
  const int most = std::min({s->remaining(), budget.tokens, budget.chunk_tokens});
  for (int count = most; count > 0; --count) {
    Chunk c{.sequence = s, .begin = s->scheduled, .count = count, .samples = count == s->remaining()};
    SetScores(c);
    if (c.logits() > budget.logits) continue;
    budget.chunk_tokens -= count;
    return Take(std::move(c), plan, budget);
  }
}

void Scheduler::Take(Chunk c, StepPlan& plan, Budget& budget) {
  Sequence& s = *c.sequence;
  c.recomputes = s.recomputes;
  c.forks = c.samples && s.pending == 0 && !s.siblings.empty();
  budget.tokens -= c.rows();
  budget.logits -= c.logits();
  --budget.seqs;
  s.scheduled += c.count;
  s.pending += c.samples ? 1 : 0;
  s.last_planned = plans_;
  plan.chunks.push_back(std::move(c));
}

void Scheduler::PlanArrivals(StepPlan& plan, Budget& budget) {
  while (budget.tokens > 0 && budget.chunk_tokens > 0 && budget.seqs > 0 && budget.logits > 0 && !waiting_.empty()) {
    const SequencePtr first = waiting_.front();
    if (!AdmitFirst()) return;
    PlanChunk(first, plan, budget);
  }
}

bool Scheduler::AdmitFirst() {
  const SequencePtr s = waiting_.front();
  if (s->pending > 0 || !SlotFor(*s)) return false;
  if (!kv_->Admit(*s, int(s->tokens.size()), Watermark())) return false;
  if (s->recomputes == 0) s->hit_tokens = s->computed;
  waiting_.erase(waiting_.begin());
  AddRunning(s);
  return true;
}

int64_t Scheduler::waiting_tokens() const {
  int64_t tokens = 0;
  for (const SequencePtr& s : waiting_) tokens += s->remaining();
  for (const SequencePtr& s : running_) {
    if (!IsDecodeRow(*s) && !s->complete()) tokens += s->remaining();
  }
  return tokens;
}

int Scheduler::promised_blocks() const {
  int blocks = 0;
  for (const SequencePtr& s : waiting_) blocks += kernels::BlocksFor(s->total(), kv_->block_size());
  return blocks;
}

}  // namespace sluice::engine
