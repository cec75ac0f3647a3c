#include "cli/bench/bench.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iostream>
#include <memory>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/bench/arrivals.h"
#include "cli/bench/grpc_sender.h"
#include "cli/bench/http_sender.h"
#include "cli/bench/plot.h"
#include "cli/bench/run.h"
#include "cli/exit_codes.h"
#include "cli/interrupt.h"
#include "cli/output.h"

namespace sluice::cli::bench {
namespace {

using nlohmann::json;

constexpr int kWarmupConcurrency = 4;
constexpr uint64_t kWarmupSeed = 0x77a5;                 // other prompts than those that are measured
constexpr auto kQuietPeriod = std::chrono::seconds(10);  // of progress where nobody watches

struct Bench {
  BenchOptions options;
  double rate = 0;
  uint64_t seed = 0;
  TargetInfo target;
  TokenRange tokens;
  std::vector<simulation::TraceRequest> trace;
};

// A line that is drawn over at a terminal; elsewhere one now and then.
class ProgressLine {
 public:
  ProgressLine(bool quiet, int requests, std::string what)
      : quiet_(quiet), terminal_(isatty(STDERR_FILENO) != 0), requests_(requests), what_(std::move(what)) {}
  ~ProgressLine() {
    if (drawn_) std::cerr << "\r\x1b[K" << std::flush;
  }

  void operator()(const Progress& p) {
    const Clock::time_point now = Clock::now();
    if (quiet_ || (!terminal_ && now - told_ < kQuietPeriod)) return;
    told_ = now;
    const std::string line = absl::StrFormat("%s%d of %d sent, %d under way, %d done, %d failed, %d tokens", what_,
                                             p.sent, requests_, p.running, p.done, p.failed, p.tokens);
    drawn_ = terminal_;
    std::cerr << (terminal_ ? "\r" + line + "\x1b[K" : line + "\n") << std::flush;
  }

 private:
  const bool quiet_, terminal_;
  const int requests_;
  const std::string what_;
  bool drawn_ = false;
  Clock::time_point told_ = Clock::now();
};

int Fail(const absl::Status& status) {
  std::cerr << "sluice: " << status.message() << "\n";
  return absl::IsUnavailable(status) ? kExitServer : kExitUsage;
}

absl::StatusOr<std::unique_ptr<Sender>> OpenSender(const Bench& bench) {
  const BenchOptions& o = bench.options;
  SenderOptions sender;
  sender.address = o.api == "grpc" ? o.router : o.http;
  sender.connections = o.connections;
  sender.timeout_s = o.timeout_s;
  sender.temperature = o.temperature;
  sender.ignore_eos = o.ignore_eos;
  sender.seed = bench.seed;
  if (o.api == "grpc") return OpenGrpcSender(sender);
  return OpenHttpSender(o.api == "chat" ? HttpApi::kChat : HttpApi::kCompletions, sender);
}

absl::StatusOr<RunPlan> RandomPlan(const Bench& bench, double rate, int count, uint64_t seed) {
  const BenchOptions& o = bench.options;
  RandomWorkload workload;
  absl::StatusOr<Lengths> input = ParseLengths(o.input_tokens, "--input-tokens");
  absl::StatusOr<Lengths> output = ParseLengths(o.output_tokens, "--output-tokens");
  if (!input.ok()) return input.status();
  if (!output.ok()) return output.status();
  workload.input = *input;
  workload.output = *output;
  workload.shared_prefix_tokens = o.shared_prefix_tokens;
  workload.prefixes = o.prefixes;
  absl::StatusOr<std::vector<PlannedRequest>> requests =
      MakeRandom(workload, count, bench.tokens, bench.target.context, seed);
  if (!requests.ok()) return requests.status();
  simulation::Rng rng(seed);
  RunPlan plan{rate, Arrivals(count, rate, o.burstiness, rng), *std::move(requests), o.max_concurrency};
  plan.closed_loop = !std::isfinite(rate) && o.max_concurrency > 0;
  return plan;
}

RunPlan TracePlan(const Bench& bench) {
  const BenchOptions& o = bench.options;
  TraceWorkload workload =
      MakeFromTrace(bench.trace, o.requests, o.divide, o.speed, bench.tokens, bench.target.context, bench.seed);
  if (workload.cut > 0) {
    std::cerr << "sluice: " << workload.cut << " requests of the trace were shortened to fit into the context of "
              << bench.target.context << " tokens; --divide makes all of them shorter\n";
  }
  const size_t n = workload.requests.size();
  const double rate = workload.at_s.back() > 0 ? double(n - 1) / workload.at_s.back() : double(n);
  return {rate, std::move(workload.at_s), std::move(workload.requests), o.max_concurrency};
}

json ConfigJson(const Bench& bench) {
  const BenchOptions& o = bench.options;
  return {{"api", o.api},
          {"address", o.api == "grpc" ? o.router : o.http},
          {"model", bench.target.model},
          {"context", bench.target.context},
          {"vocabulary", bench.target.vocabulary},
          {"rate", o.rate},
          {"burstiness", o.burstiness},
          {"max_concurrency", o.max_concurrency},
          {"requests", o.requests},
          {"warmup", o.warmup},
          {"input_tokens", o.input_tokens},
          {"output_tokens", o.output_tokens},
          {"shared_prefix_tokens", o.shared_prefix_tokens},
          {"prefixes", o.prefixes},
          {"trace", o.trace},
          {"divide", o.divide},
          {"speed", o.speed},
          {"seed", bench.seed},
          {"temperature", o.temperature},
          {"ignore_eos", o.ignore_eos},
          {"timeout_s", o.timeout_s}};
}

// Whether a file can be written, before anything is measured for it.
absl::Status CheckWritable(const std::string& path) {
  if (path.empty() || std::ofstream(path, std::ios::app)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(path, ": cannot be written"));
}

absl::Status WriteFile(const std::string& path, const std::string& text) {
  if (path.empty()) return absl::OkStatus();
  std::ofstream out(path, std::ios::trunc);
  if (out << text << std::flush) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(path, ": cannot be written"));
}

absl::Status WarmUp(Sender& sender, const Bench& bench, Stopper& stopper) {
  if (bench.options.warmup == 0) return absl::OkStatus();
  absl::StatusOr<RunPlan> plan = RandomPlan(bench, std::numeric_limits<double>::infinity(), bench.options.warmup,
                                            simulation::Mix(bench.seed, kWarmupSeed));
  if (!plan.ok()) return plan.status();
  plan->max_concurrency = kWarmupConcurrency;
  ProgressLine line(bench.options.quiet, bench.options.warmup, "warm-up: ");
  Run(sender, *plan, {}, stopper, std::ref(line));
  return absl::OkStatus();
}

struct Outcomes {
  json out;
  std::string text;
  RunReport last;  // of a search: of the best rate
  int done = 0;
};

absl::StatusOr<Outcomes> Search(Sender& sender, const Bench& bench, Stopper& stopper) {
  const BenchOptions& o = bench.options;
  const GoodputOptions options{bench.rate, o.goodput_share, o.goodput_precision, o.goodput_tries};
  GoodputSearch search(options);
  Outcomes outcomes;
  json runs = json::array();
  uint64_t number = 0;
  while (const std::optional<double> rate = search.Next()) {
    // Prompts of their own, so that no rate finds those of another in a prefix cache.
    absl::StatusOr<RunPlan> plan = RandomPlan(bench, *rate, o.requests, simulation::Mix(bench.seed, ++number));
    if (!plan.ok()) return plan.status();
    ProgressLine line(o.quiet, o.requests, absl::StrFormat("%.4g/s: ", *rate));
    RunReport report = Run(sender, *plan, o.slo, stopper, std::ref(line));
    outcomes.done += report.summary.done;
    runs.push_back(RunJson(report));
    if (stopper.stopped()) break;  // half a run says nothing about its rate
    search.Took(*rate, report.summary.good, report.summary.offered);
    if (report.summary.done == 0) break;
    if (search.best() != nullptr && search.best()->rate == *rate) outcomes.last = std::move(report);
  }
  outcomes.out = {{"goodput", GoodputJson(search, options)}, {"runs", std::move(runs)}};
  outcomes.text = GoodputTable(search, options);
  if (!outcomes.last.records.empty()) {
    outcomes.text += absl::StrFormat("\nat %.4g/s:\n", outcomes.last.rate) + RunTable(outcomes.last);
  }
  return outcomes;
}

absl::StatusOr<Outcomes> Measure(Sender& sender, const Bench& bench, Stopper& stopper) {
  if (bench.options.goodput_search) return Search(sender, bench, stopper);
  absl::StatusOr<RunPlan> plan = bench.trace.empty() ? RandomPlan(bench, bench.rate, bench.options.requests, bench.seed)
                                                     : absl::StatusOr<RunPlan>(TracePlan(bench));
  if (!plan.ok()) return plan.status();
  Outcomes outcomes;
  ProgressLine line(bench.options.quiet, int(plan->requests.size()), "");
  outcomes.last = Run(sender, *plan, bench.options.slo, stopper, std::ref(line));
  outcomes.done = outcomes.last.summary.done;
  outcomes.out = RunJson(outcomes.last);
  outcomes.text = RunTable(outcomes.last);
  return outcomes;
}

absl::Status Prepare(Sender& sender, Bench& bench) {
  absl::StatusOr<TargetInfo> target = sender.Ask();
  if (!target.ok()) return target.status();
  bench.target = *target;
  if (bench.options.vocabulary > 0) bench.target.vocabulary = bench.options.vocabulary;
  if (bench.target.vocabulary < 2) {
    return absl::InvalidArgumentError("the server does not say how large its vocabulary is; give --vocabulary N");
  }
  bench.tokens = OrdinaryTokens(bench.target.vocabulary);
  return absl::OkStatus();
}

}  // namespace

int RunBench(const BenchOptions& options) {
  Bench bench{options};
  if (absl::Status status = CheckTogether(options, &bench.rate); !status.ok()) return Fail(status);
  for (const std::string& path : {options.json, options.plot}) {
    if (absl::Status status = CheckWritable(path); !status.ok()) return Fail(status);
  }
  bench.seed = options.seed ? *options.seed : std::random_device()();
  if (!options.trace.empty()) {
    auto trace = simulation::ReadTraceFile(options.trace);
    if (!trace.ok()) return Fail(absl::InvalidArgumentError(trace.status().message()));
    bench.trace = *std::move(trace);
  }
  Interrupt::Block();
  absl::StatusOr<std::unique_ptr<Sender>> sender = OpenSender(bench);
  if (!sender.ok()) return Fail(sender.status());
  if (absl::Status status = Prepare(**sender, bench); !status.ok()) return Fail(status);

  Stopper stopper;
  int signal = 0;
  absl::StatusOr<Outcomes> outcomes;
  {
    const Interrupt interrupt([&](int number) {
      signal = number;
      stopper.Stop();
    });
    absl::Status warm = WarmUp(**sender, bench, stopper);
    outcomes = warm.ok() ? Measure(**sender, bench, stopper) : absl::StatusOr<Outcomes>(warm);
  }
  if (!outcomes.ok()) return Fail(outcomes.status());
  outcomes->out["config"] = ConfigJson(bench);
  std::string text =
      absl::StrFormat("%s at %s, model %s, seed %d\n", options.api,
                      options.api == "grpc" ? options.router : options.http, bench.target.model, bench.seed);
  for (const absl::Status& status :
       {Print(text + outcomes->text),
        WriteFile(options.json, outcomes->out.dump(-1, ' ', false, json::error_handler_t::replace) + "\n"),
        options.plot.empty() ? absl::OkStatus() : WriteFile(options.plot, PlotSvg(outcomes->last))}) {
    if (status.ok()) continue;
    std::cerr << "sluice: " << status.message() << "\n";
    return kExitServer;
  }
  if (signal != 0) return 128 + signal;
  return outcomes->done > 0 ? kExitOk : kExitServer;
}

}  // namespace sluice::cli::bench
