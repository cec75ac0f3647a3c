#include "engine/scheduler.h"

#include <glog/logging.h>

#include <algorithm>

namespace sluice::engine {
namespace {

bool RunsBefore(const Sequence* a, const Sequence* b) {
  return a->priority != b->priority ? a->priority < b->priority : a->arrival < b->arrival;
}

}  // namespace

Scheduler::Scheduler(const SchedulerLimits& limits) : limits_(limits) {
  CHECK_GT(limits_.max_step_tokens, 0);
  CHECK_GT(limits_.max_step_seqs, 0);
}

void Scheduler::Add(Sequence* sequence) {
  sequences_.insert(std::upper_bound(sequences_.begin(), sequences_.end(), sequence, RunsBefore), sequence);
}

void Scheduler::Remove(Sequence* sequence) {
  std::erase(sequences_, sequence);
}

StepPlan Scheduler::Plan() const {
  StepPlan plan;
  int budget = limits_.max_step_tokens;
  const auto take = [&](bool decode_rows) {
    for (Sequence* s : sequences_) {
      if (budget == 0 || int(plan.size()) == limits_.max_step_seqs) return;
      const int remaining = s->remaining();
      if (remaining == 0 || (remaining == 1) != decode_rows) continue;
      const int count = std::min(remaining, budget);
      plan.push_back({s, s->computed, count, count == remaining});
      budget -= count;
    }
  };
  take(true);
  take(false);
  return plan;
}

int Scheduler::running() const {
  return int(std::count_if(sequences_.begin(), sequences_.end(), [](const Sequence* s) { return s->computed > 0; }));
}

int Scheduler::waiting() const {
  return int(sequences_.size()) - running();
}

int64_t Scheduler::waiting_tokens() const {
  int64_t tokens = 0;
  for (const Sequence* s : sequences_) tokens += s->remaining();
  return tokens;
}

}  // namespace sluice::engine
