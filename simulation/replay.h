// A recorded trace against a simulated cluster of any size: what a policy makes of it. Nothing fails here; every answer
// is checked, token by token, all the same.
//
// One trace is short, so copies of it, each with prompts of its own, run one after the other and as many side by side,
// shifted in time, as the rate needs: so each runs at about the trace's own pace, and prefixes come back after about
// as much time as in the trace.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "router/policy.h"
#include "simulation/trace.h"
#include "simulation/worker_model.h"

namespace sluice::simulation {

struct ReplayOptions {
  int prefill = 8;
  int decode = 2;
  int both = 0;
  WorkerModel prefill_model;
  WorkerModel decode_model;
  WorkerModel both_model;
  router::PolicyOptions policy;
  int64_t requests = 10000;
  double rate = 1;  // requests a second
  uint64_t seed = 1;
  int queue_limit = 1 << 20;
  double ttft_slo_ms = 4000;  // what counts as good
  double tpot_slo_ms = 60;
};

struct Spread {
  double p50 = 0, p90 = 0, p99 = 0, mean = 0;
};

struct ReplayResult {
  int64_t requests = 0;
  int64_t answered = 0;
  int64_t refused = 0;  // by a full queue, or too large
  int64_t wrong = 0;    // answers
  std::string first_wrong;
  double virtual_s = 0;  // from the first request to the last token
  Spread ttft_ms;
  Spread repeat_ttft_ms;  // of requests of which half or more was asked for before, in the order of the trace
  Spread new_ttft_ms;     // of the others
  Spread tpot_ms;         // of answers of two tokens and more
  Spread queue_ms;
  double hit_share = 0;   // of prompt tokens, found where the prompt was computed
  double attainment = 0;  // share of requests within both limits
  double goodput = 0;     // of them, a second
  // The busiest worker against the average, of those that compute prompts and of those that answer: time in steps.
  double prompt_imbalance = 0;
  double answer_imbalance = 0;
  double prompt_use = 0;  // time in steps over time
  double answer_use = 0;
  int64_t events = 0;  // of the core
  size_t most_queued = 0;
};

// Prompt tokens a second that all workers compute, over the trace's average prompt: requests a second, if every token
// had to be computed.
double PromptCapacity(const ReplayOptions& options, const std::vector<TraceRequest>& trace);

// `progress` is called now and then with requests that have ended.
ReplayResult Replay(const ReplayOptions& options, const std::vector<TraceRequest>& trace,
                    const std::function<void(int64_t)>& progress = nullptr);

}  // namespace sluice::simulation
