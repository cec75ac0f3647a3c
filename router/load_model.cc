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
  attempts_[key] = Attempt{.demand = demand, .blocks = demand.Blocks(block_size_), .computed = cached};
  last_turn_ = turn;
}

void WorkerLoad::Granted(const AttemptKey& key) {
  if (auto it = attempts_.find(key); it != attempts_.end()) it->second.granted = true;
}

void WorkerLoad::Computed(const AttemptKey& key, int64_t tokens) {
  auto it = attempts_.find(key);
  if (it == attempts_.end()) return;
  it->second.granted = true;
  it->second.computed = std::clamp<int64_t>(tokens, it->second.computed, it->second.demand.prompt_tokens);
}

void WorkerLoad::Generated(const AttemptKey& key, int tokens) {
  auto it = attempts_.find(key);
  if (it == attempts_.end()) return;
  Attempt& attempt = it->second;
  if (attempt.generated == 0 && attempt.reported) {
    reported_backlog_ = std::max<int64_t>(0, reported_backlog_ - attempt.demand.prompt_tokens);
  }
  attempt.generated += tokens;
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
  attempts_.erase(it);
  held_back_ = false;
}

void WorkerLoad::Refused(const AttemptKey& key, int64_t blocks_free) {
  attempts_.erase(key);
  reported_free_ = std::clamp<int64_t>(blocks_free, 0, blocks_total_);
  for (auto& [other, attempt] : attempts_) attempt.reported = attempt.reported || attempt.granted;
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
  if (role_ == pb::ROLE_PREFILL) reported_backlog_ = std::max<int64_t>(0, reported_backlog_ - OwnBacklog());
  for (auto& [key, attempt] : attempts_) attempt.reported = attempt.granted;
  held_back_ = false;
}

int64_t WorkerLoad::blocks_free() const {
  int64_t blocks = reported_free_;
  for (const auto& [key, attempt] : attempts_) {
    if (!attempt.reported) blocks -= attempt.blocks;
  }
  return blocks;
}

int64_t WorkerLoad::OwnBacklog() const {
  int64_t tokens = 0;
  for (const auto& [key, attempt] : attempts_) tokens += attempt.demand.prompt_tokens - attempt.computed;
  return tokens;
}

int64_t WorkerLoad::prompt_backlog() const {
  if (role_ == pb::ROLE_DECODE) return 0;
  if (role_ == pb::ROLE_PREFILL) return reported_backlog_ + OwnBacklog();
  int64_t tokens = reported_backlog_;
  for (const auto& [key, attempt] : attempts_) {
    if (!attempt.reported && attempt.generated == 0) tokens += attempt.demand.prompt_tokens - attempt.computed;
  }
  return tokens;
}

int WorkerLoad::choices() const {
  int choices = 0;
  for (const auto& [key, attempt] : attempts_) choices += attempt.demand.choices;
  return choices;
}

int WorkerLoad::sequences() const {
  return std::max(choices(), reported_running_);
}

int64_t WorkerLoad::answer_tokens() const {
  int64_t tokens = 0;
  for (const auto& [key, attempt] : attempts_) {
    tokens += std::max<int64_t>(0, attempt.demand.AllAnswerTokens() - attempt.generated);
  }
  return tokens;
}

}  // namespace sluice::router
