// How loaded each worker is: predicted at dispatch, corrected by the worker's reports. Pure.
//
// A burst must not go to one worker because its report is late (the report shows the past), so every dispatch is
// charged at once. A report replaces what it can know of: the attempts that the worker had granted before. The model
// errs for one report at most; a worker that has less room than predicted refuses, and the refusal corrects the model
// too.
//
// Rates are learned: what a prompt's token takes from the engine's own counters (rows over execution time, of workers
// that compute prompts only; of the others from their profile at the start), what a step takes from its average and the
// sequences that ran.
//
// What counts depends on the role. `both`: blocks of prompt and answer, prompts to compute, answers to come. Prefill:
// the blocks of the prompt, and prompts to compute, which the worker's progress reports count down. Decode: blocks of
// prompt and answer, and answers to come.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "router/events.h"
#include "router/step_time.h"

namespace sluice::router {

// What one request asks of a worker. By default its blocks are promised for the whole answer, so that nobody is
// preempted; with `headroom` for that many tokens of it, and who later lacks blocks is computed again.
struct Demand {
  int prompt_tokens = 0;  // to compute
  int answer_tokens = 0;  // of one choice, at most
  int choices = 1;
  int headroom = 0;          // 0: the whole answer
  double ttft_limit_ms = 0;  // the request's own; 0: none
  double tpot_limit_ms = 0;

  int64_t AllAnswerTokens() const { return int64_t(answer_tokens) * choices; }
  // Choices share the full blocks of the prompt. Who only computes the prompt has it once.
  int64_t Blocks(int block_size) const {
    const int promised = headroom > 0 ? std::min(headroom, answer_tokens) : answer_tokens;
    const int64_t one = (int64_t(prompt_tokens) + promised + block_size - 1) / block_size;
    return answer_tokens == 0 ? one : one + (choices - 1) * (one - prompt_tokens / block_size);
  }
};

using AttemptKey = std::pair<std::string, int>;  // request id on the wire, attempt

class WorkerLoad {
 public:
  WorkerLoad() = default;
  explicit WorkerLoad(const pb::WorkerInfo& info);

  // `cached`: tokens of its prompt that are predicted to be there; `turn`: counts up with every dispatch of the router.
  void Dispatched(const AttemptKey& key, const Demand& demand, int cached = 0, uint64_t turn = 0);
  void Granted(const AttemptKey& key);
  // A prefill worker has the request and computed this much of its prompt.
  void Computed(const AttemptKey& key, int64_t tokens);
  void Generated(const AttemptKey& key, int tokens);
  void Ended(const AttemptKey& key);  // no-op for what is not here
  // Refused for lack of room: nothing more goes there until a report, or until something ends.
  void Refused(const AttemptKey& key, int64_t blocks_free);
  void Report(const pb::WorkerReport& report);

  int64_t blocks_total() const { return blocks_total_; }
  int64_t blocks_free() const { return reported_free_ - sums_.unreported_blocks; }  // predicted
  int64_t prompt_backlog() const;                                // prompt tokens that are not computed yet, predicted
  int64_t answer_tokens() const { return sums_.answer_tokens; }  // that may still come, at most
  int attempts() const { return int(attempts_.size()); }
  int choices() const { return sums_.choices; }  // of the attempts
  int sequences() const;                         // that run or are about to, other routers' included
  bool held_back() const { return held_back_; }
  uint64_t last_turn() const { return last_turn_; }  // of the newest dispatch; 0: none

  // Learned from reports: what a step with so many rows takes, and what a token of a prompt takes.
  double step_ms(int rows) const { return steps_.known() ? steps_.At(rows) : kUnknownMs * std::max(1, rows); }
  double ms_per_prompt_token() const { return ms_per_prompt_token_ > 0 ? ms_per_prompt_token_ : kUnknownMs; }

  double prompt_tokens_per_s() const {
    return ms_per_prompt_token_ > 0 ? 1000 / ms_per_prompt_token_ : 0;
  }  // 0: unknown
  pb::Role role() const { return role_; }

  int block_size() const { return block_size_; }
  int max_running() const { return max_running_; }
  int max_step_tokens() const { return max_step_tokens_; }
  int context_length() const { return context_length_; }

 private:
  struct Attempt {
    Demand demand;
    int64_t blocks = 0;
    int64_t computed = 0;  // of the prompt, where the role reports it
    int generated = 0;
    bool granted = false;
    bool reported = false;  // the last report includes it
  };

  static constexpr double kUnknownMs = 1;  // of a worker that has told nothing; the same for all, so that loads compare

  // What the attempts ask for, all together: kept up with each of them, since placement asks for it of every worker.
  struct Sums {
    int64_t unreported_blocks = 0;
    int64_t backlog = 0;             // of prompts
    int64_t unreported_backlog = 0;  // of those that have no token yet
    int64_t answer_tokens = 0;
    int choices = 0;
  };
  void Count(const Attempt& attempt, int sign);
  template <typename Change>
  void Update(Attempt& attempt, Change change) {
    Count(attempt, -1);
    change(attempt);
    Count(attempt, 1);
  }
  void Learn(const pb::WorkerReport& report);

  pb::Role role_ = pb::ROLE_BOTH;
  int64_t blocks_total_ = 0;
  int block_size_ = 16;
  int max_running_ = 0;
  int max_step_tokens_ = 0;
  int context_length_ = 0;

  std::map<AttemptKey, Attempt> attempts_;
  Sums sums_;
  int64_t reported_free_ = 0;
  int64_t reported_backlog_ = 0;  // of a prefill worker: what others gave it
  int reported_running_ = 0;
  bool held_back_ = false;
  uint64_t last_turn_ = 0;

  StepTime steps_;                  // of decode rows
  double ms_per_prompt_token_ = 0;  // 0: unknown
  uint64_t learned_rows_ = 0;       // the engine's counters as last reported
  double learned_seconds_ = 0;
};

}  // namespace sluice::router
