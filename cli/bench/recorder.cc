#include "cli/bench/recorder.h"

#include <utility>

namespace sluice::cli::bench {

Recorder::Recorder(std::vector<Record> planned) : records_(std::move(planned)) {}

void Recorder::Sent(int index, Clock::time_point now, bool scheduled_now) {
  const std::lock_guard lock(mutex_);
  Record& record = records_[size_t(index)];
  record.sent_s = At(now);
  if (scheduled_now) record.scheduled_s = record.sent_s;
  progress_.sent += 1;
  progress_.running += 1;
}

void Recorder::Tokens(int index, Clock::time_point now, int count) {
  if (count <= 0) return;
  const std::lock_guard lock(mutex_);
  Record& record = records_[size_t(index)];
  const double at = At(now);
  if (record.first_s < 0) {
    record.first_s = at;
  } else {
    record.gaps_ms.push_back((at - record.last_s) * 1000);
  }
  record.gaps_ms.insert(record.gaps_ms.end(), size_t(count - 1), 0.0);
  record.last_s = at;
  record.output_tokens += count;
  progress_.tokens += count;
}

void Recorder::Ended(int index, Clock::time_point now, Outcome outcome, std::string error, const Counted& counted) {
  const std::lock_guard lock(mutex_);
  Record& record = records_[size_t(index)];
  if (record.outcome != Outcome::kRunning) return;
  record.ended_s = At(now);
  record.outcome = outcome;
  record.error = std::move(error);
  if (counted.prompt_tokens >= 0) record.prompt_tokens = counted.prompt_tokens;
  if (counted.cached_tokens >= 0) record.cached_tokens = counted.cached_tokens;
  if (counted.output_tokens >= 0) record.output_tokens = counted.output_tokens;
  if (outcome == Outcome::kDone && record.first_s < 0) record.first_s = record.last_s = record.ended_s;
  progress_.running -= 1;
  (outcome == Outcome::kDone ? progress_.done : progress_.failed) += 1;
  changed_.notify_all();
}

bool Recorder::WaitForRoom(int most) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return stopped_ || progress_.running < most; });
  return !stopped_;
}

bool Recorder::WaitUntil(Clock::time_point until) {
  std::unique_lock lock(mutex_);
  while (!stopped_ && Clock::now() < until) changed_.wait_until(lock, until);
  return !stopped_;
}

bool Recorder::WaitForEnd(Clock::time_point until) {
  std::unique_lock lock(mutex_);
  return changed_.wait_until(lock, until, [&] { return progress_.running == 0; });
}

void Recorder::Stop() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  changed_.notify_all();
}

bool Recorder::stopped() {
  const std::lock_guard lock(mutex_);
  return stopped_;
}

Progress Recorder::progress() {
  const std::lock_guard lock(mutex_);
  return progress_;
}

std::vector<Record> Recorder::Take() {
  const std::lock_guard lock(mutex_);
  return std::move(records_);
}

}  // namespace sluice::cli::bench
