#include "worker/progress_watch.h"

#include <algorithm>
#include <utility>

namespace sluice::worker {

ProgressWatch::ProgressWatch(absl::Duration limit, std::function<absl::Duration()> turn_age,
                             std::function<void(bool)> on_change)
    : limit_(limit), turn_age_(std::move(turn_age)), on_change_(std::move(on_change)) {}

ProgressWatch::~ProgressWatch() {
  Stop();
}

void ProgressWatch::Start() {
  thread_ = std::thread([this] { Run(); });
}

void ProgressWatch::Stop() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  if (thread_.joinable()) thread_.join();
}

void ProgressWatch::Run() {
  const absl::Duration period = std::min(limit_ / 8, absl::Seconds(1));
  bool stuck = false;
  while (true) {
    {
      absl::MutexLock lock(&mutex_);
      if (mutex_.AwaitWithTimeout(absl::Condition(&stopping_), period)) return;
    }
    if (const bool now = turn_age_() > limit_; now != stuck) on_change_(stuck = now);
  }
}

}  // namespace sluice::worker
