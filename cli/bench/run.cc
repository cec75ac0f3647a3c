#include "cli/bench/run.h"

#include <sys/resource.h>

#include <thread>
#include <utility>

namespace sluice::cli::bench {
namespace {

constexpr auto kTellPeriod = std::chrono::milliseconds(250);
constexpr auto kPatience = std::chrono::seconds(10);  // after a cancel

double CpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) { return double(t.tv_sec) + double(t.tv_usec) * 1e-6; };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

std::vector<Record> Planned(const RunPlan& plan) {
  std::vector<Record> records(plan.requests.size());
  for (size_t i = 0; i < records.size(); ++i) {
    records[i].scheduled_s = plan.at_s[i];
    records[i].wanted_tokens = plan.requests[i].max_tokens;
    records[i].prompt_tokens = int(plan.requests[i].prompt.size());
  }
  return records;
}

// False: it was stopped.
bool SendAll(Sender& sender, const RunPlan& plan, Recorder& recorder) {
  for (size_t i = 0; i < plan.requests.size(); ++i) {
    const auto at = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(plan.at_s[i]));
    if (!recorder.WaitUntil(recorder.begin() + at)) return false;
    if (plan.max_concurrency > 0 && !recorder.WaitForRoom(plan.max_concurrency)) return false;
    recorder.Sent(int(i), Clock::now(), plan.closed_loop);
    sender.Start(recorder, int(i), plan.requests[i]);
  }
  return true;
}

// Calls `tell` now and then while it lives.
class Teller {
 public:
  Teller(Recorder& recorder, const std::function<void(const Progress&)>& tell) {
    if (!tell) return;
    thread_ = std::thread([this, &recorder, &tell] {
      std::unique_lock lock(mutex_);
      while (!changed_.wait_for(lock, kTellPeriod, [this] { return over_; })) tell(recorder.progress());
    });
  }
  ~Teller() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace

void Stopper::Stop() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  if (recorder_ == nullptr) return;
  recorder_->Stop();
  sender_->CancelAll();
}

bool Stopper::stopped() {
  const std::lock_guard lock(mutex_);
  return stopped_;
}

void Stopper::Watch(Recorder* recorder, Sender* sender) {
  const std::lock_guard lock(mutex_);
  recorder_ = recorder;
  sender_ = sender;
  if (stopped_ && recorder != nullptr) recorder->Stop();
}

RunReport Run(Sender& sender, const RunPlan& plan, const Slo& slo, Stopper& stopper,
              const std::function<void(const Progress&)>& tell) {
  Recorder recorder(Planned(plan));
  stopper.Watch(&recorder, &sender);
  const double cpu = CpuSeconds();
  recorder.Begin(Clock::now());
  {
    const Teller teller(recorder, tell);
    SendAll(sender, plan, recorder);
    while (!recorder.stopped() && !recorder.WaitForEnd(Clock::now() + kTellPeriod)) {
    }
    // Also a request that was started while everything else was cancelled.
    for (const auto limit = Clock::now() + kPatience; !recorder.WaitForEnd(Clock::now() + kTellPeriod);) {
      if (Clock::now() > limit) break;
      sender.CancelAll();
    }
  }
  stopper.Watch(nullptr, nullptr);

  RunReport report;
  report.rate = plan.rate;
  report.slo = slo;
  report.cost.cpu_s = CpuSeconds() - cpu;
  const Progress progress = recorder.progress();
  const double wall = recorder.At(Clock::now());
  report.records = recorder.Take();
  report.summary = Summarize(report.records, slo);
  if (wall > 0) report.cost.cpu_share = report.cost.cpu_s / wall;
  if (progress.sent > 0) report.cost.us_per_request = report.cost.cpu_s * 1e6 / progress.sent;
  if (progress.tokens > 0) report.cost.us_per_token = report.cost.cpu_s * 1e6 / double(progress.tokens);
  return report;
}

}  // namespace sluice::cli::bench
