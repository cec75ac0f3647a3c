#include "router/load_model.h"

#include <algorithm>

namespace sluice::router {

WorkerLoad::WorkerLoad(const pb::WorkerInfo& info)
    : role_(info.role()),
      blocks_total_(info.blocks_total()),
      block_size_(std::max(1, info.fingerprint().block_size())),
      max_running_(info.max_running()),
      max_step_tokens_(info.max_step_tokens()),
      context_length_(info.context_length()),
      reported_free_(info.blocks_total()),
      steps_(info.decode_step_ms()),
      ms_per_prompt_token_(info.prefill_tokens_per_s() > 0 ? 1000 / info.prefill_tokens_per_s() : 0) {}

void WorkerLoad::Dispatched(const AttemptKey& key, const Demand& demand, int cached, uint64_t turn) {
  const auto [it, added] = attempts_.try_emplace(key);
  if (!added) Count(it->second, -1);
  it->second = Attempt{.demand = demand, .blocks = demand.Blocks(block_size_), .computed = cached};
  Count(it->second, 1);
  last_turn_ = turn;
}

void WorkerLoad::Granted(const AttemptKey& key) {
  if (auto it = attempts_.find(key); it != attempts_.end()) it->second.granted = true;
}

void WorkerLoad::Computed(const AttemptKey& key, int64_t tokens) {
  auto it = attempts_.find(key);
  if (it == attempts_.end()) return;
  it->second.granted = true;
  Update(it->second, [&](Attempt& a) { a.computed = std::clamp<int64_t>(tokens, a.computed, a.demand.prompt_tokens); });
}

void WorkerLoad::Generated(const AttemptKey& key, int tokens) {
  auto it = attempts_.find(key);
  if (it == attempts_.end()) return;
  Attempt& attempt = it->second;
  if (attempt.generated == 0 && attempt.reported) {
    reported_backlog_ = std::max<int64_t>(0, reported_backlog_ - attempt.demand.prompt_tokens);
  }
  Update(attempt, [&](Attempt& a) { a.generated += tokens; });
}

void WorkerLoad::Ended(const AttemptKey& key) {
  auto it = attempts_.find(key);
  if (it == attempts_.end()) return;
  const Attempt& attempt = it->second;
  if (attempt.reported) {
    reported_free_ = std::min(blocks_total_, reported_free_ + attempt.blocks);
    if (attempt.generated == 0 && role_ != pb::ROLE_PREFILL) {
      reported_backlog_ = std::max<int64_t>(0, reported_backlog_ - attempt.demand.prompt_tokens);
    }
  }
  Count(attempt, -1);
  attempts_.erase(it);
  held_back_ = false;
}

void WorkerLoad::Refused(const AttemptKey& key, int64_t blocks_free) {
  if (auto it = attempts_.find(key); it != attempts_.end()) {
    Count(it->second, -1);
    attempts_.erase(it);
  }
  reported_free_ = std::clamp<int64_t>(blocks_free, 0, blocks_total_);
  for (auto& [other, attempt] : attempts_) {
    if (attempt.granted) Update(attempt, [](Attempt& a) { a.reported = true; });
  }
  held_back_ = true;
}

void WorkerLoad::Learn(const pb::WorkerReport& report) {
  if (role_ != pb::ROLE_PREFILL) {
    steps_.Add(report.running(), report.step_ms());
    return;
  }
  const double seconds = report.engine().execute_seconds() - learned_seconds_;
  const double rows = double(report.engine().rows()) - double(learned_rows_);
  if (rows < 64 || seconds <= 0) return;  // too few to tell
  const double ms = 1000 * seconds / rows;
  if (learned_rows_ > 0) ms_per_prompt_token_ = ms_per_prompt_token_ > 0 ? 0.7 * ms_per_prompt_token_ + 0.3 * ms : ms;
  learned_seconds_ = report.engine().execute_seconds();
  learned_rows_ = report.engine().rows();
}

void WorkerLoad::Report(const pb::WorkerReport& report) {
  Learn(report);
  reported_free_ = report.blocks_free();
  reported_backlog_ = report.waiting_tokens();
  reported_running_ = report.running();
  if (role_ == pb::ROLE_PREFILL) reported_backlog_ = std::max<int64_t>(0, reported_backlog_ - sums_.backlog);
  for (auto& [key, attempt] : attempts_) {
    if (attempt.reported != attempt.granted) Update(attempt, [](Attempt& a) { a.reported = a.granted; });
  }
  held_back_ = false;
}

void WorkerLoad::Count(const Attempt& a, int sign) {
  const int64_t left = a.demand.prompt_tokens - a.computed;
  sums_.backlog += sign * left;
  if (!a.reported) sums_.unreported_blocks += sign * a.blocks;
  if (!a.reported && a.generated == 0) sums_.unreported_backlog += sign * left;
  sums_.answer_tokens += sign * std::max<int64_t>(0, a.demand.AllAnswerTokens() - a.generated);
  sums_.choices += sign * a.demand.choices;
}

int64_t WorkerLoad::prompt_backlog() const {
  if (role_ == pb::ROLE_DECODE) return 0;
  return reported_backlog_ + (role_ == pb::ROLE_PREFILL ? sums_.backlog : sums_.unreported_backlog);
}

int WorkerLoad::sequences() const {
  return std::max(choices(), reported_running_);
}

}  // namespace sluice::router
