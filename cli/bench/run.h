// One run: sends requests as the schedule says and collects what comes back.
#pragma once

#include <functional>
#include <mutex>
#include <vector>

#include "cli/bench/report.h"
#include "cli/bench/sender.h"
#include "cli/bench/workload.h"

namespace sluice::cli::bench {

struct RunPlan {
  double rate = 0;
  std::vector<double> at_s;  // of each request
  std::vector<PlannedRequest> requests;
  // With a limit and all arrivals at 0 a request's time is when there is room for it; with other arrivals it stays what
  // it was, and waiting for room counts.
  int max_concurrency = 0;
  bool closed_loop = false;
};

// Ends runs from outside, such as at Ctrl-C.
class Stopper {
 public:
  void Stop();
  bool stopped();

 private:
  friend RunReport Run(Sender&, const RunPlan&, const Slo&, Stopper&, const std::function<void(const Progress&)>&);
  void Watch(Recorder* recorder, Sender* sender);  // null: nothing runs

  std::mutex mutex_;
  Recorder* recorder_ = nullptr;
  Sender* sender_ = nullptr;
  bool stopped_ = false;
};

// `tell` hears how far it is, several times a second; it may be empty.
RunReport Run(Sender& sender, const RunPlan& plan, const Slo& slo, Stopper& stopper,
              const std::function<void(const Progress&)>& tell);

}  // namespace sluice::cli::bench
