// The steps of a simulated worker: what goes in, how long it takes, what comes out.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "simulation/model_worker.h"

namespace sluice::simulation {

void ModelWorker::StickFor(absl::Duration time) {
  stuck_until_ = std::max(stuck_until_, schedule_.now() + time);
  if (stepping_) WatchProgress(uint64_t(totals_.steps));
}

// Health is forward progress: a step that takes too long is told to the router.
void ModelWorker::WatchProgress(uint64_t step) {
  At(schedule_.now() + model_.stuck_after, [this, step] {
    if (!stepping_ || uint64_t(totals_.steps) != step || std::exchange(stuck_, true)) return;
    world_.ReportSoon(*this);
  });
}

void ModelWorker::MaybeStep() {
  if (stepping_) return;
  Step step = Plan();
  if (step.planned.empty()) return;
  stepping_ = true;
  ++totals_.steps;
  const absl::Duration time = TimeOf(step) * slow_;
  totals_.execute_seconds += absl::ToDoubleSeconds(time);
  const double step_ms = absl::ToDoubleMilliseconds(time) / step.steps;
  step_ms_ = step_ms_ == 0 ? step_ms : step_ms_ + 0.1 * (step_ms - step_ms_);
  if (schedule_.now() + model_.stuck_after < std::max(stuck_until_, schedule_.now() + time)) {
    WatchProgress(uint64_t(totals_.steps));
  }
  At(schedule_.now() + time, [this, step = std::move(step)]() mutable { Commit(std::move(step)); });
}

// Decode rows first, then chunks, first come first served.
ModelWorker::Step ModelWorker::Plan() {
  Step step;
  int rows = 0;
  int budget = model_.max_step_tokens;
  int least_left = model_.steps_at_once;
  for (const auto& [id, job] : jobs_) {
    if (job.state != ModelJob::kDecoding || rows + job.rows() > model_.max_running) continue;
    rows += job.rows();
    step.planned.push_back({id, 0});
    for (const ModelJob::Choice& choice : job.choices) {
      if (!choice.over) least_left = std::min(least_left, job.max_tokens - choice.answer.position());
    }
  }
  budget -= rows;
  for (auto& [id, job] : jobs_) {
    if (job.state != ModelJob::kComputing || budget <= 0 || rows >= model_.max_running) continue;
    if (!std::exchange(job.started, true)) {
      const int blocks = job.prompt_logprobs ? 0 : cache_.Hit(job.names, (job.tokens - 1) / model_.block_size);
      job.computed = job.cached = blocks * model_.block_size;
      totals_.prompt_tokens += job.tokens;
      totals_.hit_tokens += job.cached;
    }
    const int tokens = std::min(budget, job.left());
    budget -= tokens;
    ++rows;
    step.planned.push_back({id, tokens});
    least_left = 1;
  }
  step.steps = std::max(1, least_left);
  return step;
}

absl::Duration ModelWorker::TimeOf(const Step& step) const {
  int64_t tokens = 0;
  int64_t context = 0;
  for (const Planned& planned : step.planned) {
    const ModelJob& job = jobs_.at(planned.job);
    if (planned.tokens > 0) {
      tokens += planned.tokens;
      context += job.computed;
      continue;
    }
    tokens += job.rows();
    for (const ModelJob::Choice& choice : job.choices) {
      if (!choice.over) context += job.prompt_tokens + choice.answer.position();
    }
  }
  return step.steps * model_.StepTime(tokens, context);
}

void ModelWorker::Commit(Step step) {
  if (stuck_until_ > schedule_.now()) {
    return At(stuck_until_, [this, step = std::move(step)]() mutable { Commit(std::move(step)); });
  }
  stepping_ = false;
  if (std::exchange(stuck_, false)) world_.ReportSoon(*this);
  for (const Planned& planned : step.planned) {
    const auto it = jobs_.find(planned.job);
    if (it == jobs_.end() || !it->second.runs()) continue;  // it ended meanwhile
    ModelJob& job = it->second;
    if (rng_.OneIn(model_.fail_one_in)) {
      ++totals_.injected;
      Stop(job, MakeError(pb::INTERNAL_ERROR, int(absl::StatusCode::kInternal), "injected"), true);
    } else if (planned.tokens > 0) {
      totals_.rows += planned.tokens;
      CommitChunk(job, planned.tokens);
    } else {
      totals_.rows += int64_t(job.rows()) * step.steps;
      Decode(job, step.steps);
    }
  }
  Flush();
  MaybeStep();
}

void ModelWorker::CommitChunk(ModelJob& job, int tokens) {
  job.computed += tokens;
  cache_.Store(job.names, job.computed / model_.block_size);
  cache_.Shrink(model_.blocks - promised_);
  if (job.kind == ModelJob::kPrompt) {
    if (job.lease != 0 && !std::exchange(job.opened, true) && !world_.Paired(*this, job.peer)) {
      const pb::ErrorInfo lost =
          MakeError(pb::WORKER_LOST, int(absl::StatusCode::kUnavailable), "no link to the decode worker");
      return End(job.id, &lost);
    }
    SendPieces(job, job.computed);
    AddProgress(job, "prefill_chunk", job.computed);
  }
  if (job.computed == job.tokens) FirstTokens(job);
}

// All transfers of a worker share its way out.
void ModelWorker::SendPieces(ModelJob& job, int tokens) {
  const int fresh = tokens - job.sent;
  if (job.lease == 0 || fresh <= 0) return;
  job.sent = tokens;
  pieces_sent_ = std::max(pieces_sent_, schedule_.now()) + absl::Seconds(double(fresh) / model_.kv_tokens_per_s);
}

void ModelWorker::FirstTokens(ModelJob& job) {
  KvMessage commit;
  commit.kind = KvMessage::kCommit;
  commit.computed_tokens = job.tokens;
  commit.cached_tokens = job.cached;
  commit.lease = job.lease;
  commit.bytes = int64_t(job.tokens) * model_.kv_bytes_per_token;
  for (ModelJob::Choice& choice : job.choices) {
    AddTokens(job, choice, 1, &choice == &job.choices.front());
  }
  if (job.kind == ModelJob::kLease) {
    job.state = ModelJob::kDecoding;
    if (job.all_over()) End(job.id, nullptr);
    return;
  }
  AddProgress(job, "first_token", 0);
  HandOver(job, std::move(commit), !job.all_over());
}

void ModelWorker::HandOver(ModelJob& job, KvMessage commit, bool goes_on) {
  if (job.lease == 0) return End(job.id, nullptr);
  if (!goes_on) {
    KvMessage cancel;
    cancel.kind = KvMessage::kCancel;
    cancel.lease = job.lease;
    cancel.error = MakeError(pb::CANCELLED_BY_CLIENT, int(absl::StatusCode::kCancelled),
                             "the answer was over with its first token");
    world_.ToPeer(*this, job.peer, std::move(cancel));
    return Leave(job, {}, false);
  }
  for (const ModelJob::Choice& choice : job.choices) {
    commit.firsts.push_back({choice.number, choice.answer.last(), choice.over});
  }
  job.state = ModelJob::kHandingOver;
  absl::Time arrives = std::max(pieces_sent_, schedule_.now());
  if (rng_.OneIn(model_.corrupt_one_in)) {
    commit.bad = true;
    commit.error = MakeError(pb::CHECKSUM_MISMATCH, int(absl::StatusCode::kDataLoss), "a piece has a wrong checksum");
  } else if (rng_.OneIn(model_.lose_one_in)) {
    commit.bad = true;
    commit.error = MakeError(pb::TRANSFER_FAILED, int(absl::StatusCode::kAborted), "a piece was lost");
    arrives += absl::Seconds(2);  // until somebody is sure of that
  }
  At(arrives, [this, id = job.id, commit = std::move(commit)]() mutable {
    const auto it = jobs_.find(id);
    if (it == jobs_.end() || it->second.state != ModelJob::kHandingOver) return;
    world_.ToPeer(*this, it->second.peer, std::move(commit));
  });
}

void ModelWorker::Decode(ModelJob& job, int steps) {
  if (std::exchange(job.says_decoding, false)) AddProgress(job, "decoding", 0);
  for (ModelJob::Choice& choice : job.choices) {
    if (!choice.over) AddTokens(job, choice, steps, false);
  }
  if (job.all_over()) End(job.id, nullptr);
}

void ModelWorker::AddTokens(ModelJob& job, ModelJob::Choice& choice, int count, bool with_prompt) {
  pb::Tokens& tokens = *Out(job.stream, job.key).mutable_tokens();
  tokens.set_choice(choice.number);
  tokens.set_first_index(choice.answer.position());
  if (with_prompt && job.prompt_logprobs) {
    for (int i = 1; i < job.prompt_tokens; ++i) tokens.add_prompt_logprobs();
  }
  int32_t token = 0;
  for (int i = 0; i < count && !choice.over; ++i) {
    token = choice.answer.Next();
    choice.answer.Take(token);
    tokens.add_token_ids(token);
    if (job.logprobs) tokens.add_logprobs()->mutable_sampled()->set_token_id(token);
    ++totals_.answer_tokens;
    choice.over = token == kEos || choice.answer.position() >= job.max_tokens;
  }
  if (choice.over) AddFinished(job, choice, token, job.all_over());
}

void ModelWorker::AddFinished(ModelJob& job, const ModelJob::Choice& choice, int32_t token, bool last) {
  pb::Finished& finished = *Out(job.stream, job.key).mutable_finished();
  finished.set_choice(choice.number);
  finished.set_reason(token == kEos ? pb::FINISH_REASON_STOP : pb::FINISH_REASON_LENGTH);
  finished.set_cached_tokens(job.kind == ModelJob::kLease && job.peer != 0 ? job.saved_tokens : job.cached);
  finished.set_last(last);
}

}  // namespace sluice::simulation
