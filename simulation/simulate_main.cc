// sluice_simulate: recorded traces against the router's core and a simulated cluster.
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_split.h"
#include "nlohmann/json.hpp"
#include "simulation/replay.h"

namespace sluice::simulation {
namespace {

struct Arguments {
  std::string trace;
  std::string policies = "slo,prefix,least-loaded,round-robin";
  std::string json;
  double load = 0.7;
  double rate = 0;
  bool quiet = false;
  ReplayOptions replay;
  int64_t prefill_cache_tokens = 400000;
  int64_t decode_cache_tokens = 1000000;
  int block_size = 512;
};

void Describe(CLI::App& app, Arguments& a) {
  ReplayOptions& r = a.replay;
  app.add_option("trace", a.trace, "Mooncake's JSON lines or Azure's CSV, such as those in bench/traces")->required();
  app.add_option("--policies", a.policies, "Which to compare, by name")->capture_default_str();
  app.add_option("--requests", r.requests,
                 "The trace is repeated, each copy with prompts of its own, until there are so many")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--load", a.load,
                 "Arrival rate, as a share of what all workers could compute if no prompt were cached anywhere")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--rate", a.rate, "Arrival rate in requests a second, instead of --load")->check(CLI::PositiveNumber);
  app.add_option("--prefill", r.prefill, "Prefill workers")->check(CLI::NonNegativeNumber)->capture_default_str();
  app.add_option("--decode", r.decode, "Decode workers")->check(CLI::NonNegativeNumber)->capture_default_str();
  app.add_option("--both", r.both, "Workers of role both")->check(CLI::NonNegativeNumber)->capture_default_str();
  app.add_option("--seed", r.seed, "Of everything; the same seed gives the same run")->capture_default_str();
  app.add_option("--ttft-slo-ms", r.ttft_slo_ms, "What counts as good: time to the first token")->capture_default_str();
  app.add_option("--tpot-slo-ms", r.tpot_slo_ms, "What counts as good: time per token after it")->capture_default_str();
  app.add_option("--prefill-tokens-per-s", r.prefill_model.tokens_per_s,
                 "Prompt tokens that a worker computes a second")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--prefill-cache-tokens", a.prefill_cache_tokens, "KV tokens that a prefill worker holds")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--decode-cache-tokens", a.decode_cache_tokens, "KV tokens that a decode worker (or both) holds")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--block-size", a.block_size,
                 "Tokens of a block; Mooncake's traces share prefixes of whole 512 tokens")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--steps-at-once", r.decode_model.steps_at_once,
                 "Decode steps that one event stands for, where nothing else runs: faster, and a little coarser")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--json", a.json, "Where the results go, too, as JSON; - is the standard output");
  app.add_flag("--quiet", a.quiet, "No progress");
}

// About a GPU of 2024 with a model of some ten billion parameters.
void Defaults(Arguments& a) {
  WorkerModel& p = a.replay.prefill_model;
  p.tokens_per_s = 10000;
  p.max_step_tokens = 8192;
  p.max_running = 64;
  p.step_base = absl::Milliseconds(20);
  p.context_us = 0.02;
  p.kv_tokens_per_s = 150000;
  p.context_length = 1 << 20;
  p.lease = absl::Seconds(10);
  p.stuck_after = absl::Minutes(1);
  WorkerModel& d = a.replay.decode_model;
  d = p;
  d.max_running = 128;
  d.max_step_tokens = 512;
  d.steps_at_once = 8;
  d.caches_prefixes = false;  // its hits would only spare transfers
}

nlohmann::json ToJson(const Spread& spread) {
  return {{"p50", spread.p50}, {"p90", spread.p90}, {"p99", spread.p99}, {"mean", spread.mean}};
}

nlohmann::json ToJson(const std::string& policy, const ReplayOptions& o, const ReplayResult& r, double seconds) {
  return {{"policy", policy},
          {"prefill", o.prefill},
          {"decode", o.decode},
          {"both", o.both},
          {"seed", o.seed},
          {"rate", o.rate},
          {"requests", r.requests},
          {"answered", r.answered},
          {"refused", r.refused},
          {"wrong", r.wrong},
          {"virtual_s", r.virtual_s},
          {"ttft_ms", ToJson(r.ttft_ms)},
          {"repeat_ttft_ms", ToJson(r.repeat_ttft_ms)},
          {"new_ttft_ms", ToJson(r.new_ttft_ms)},
          {"tpot_ms", ToJson(r.tpot_ms)},
          {"queue_ms", ToJson(r.queue_ms)},
          {"hit_share", r.hit_share},
          {"attainment", r.attainment},
          {"goodput", r.goodput},
          {"prompt_imbalance", r.prompt_imbalance},
          {"answer_imbalance", r.answer_imbalance},
          {"prompt_use", r.prompt_use},
          {"answer_use", r.answer_use},
          {"most_queued", r.most_queued},
          {"events", r.events},
          {"wall_s", seconds}};
}

int Run(Arguments& a) {
  const auto trace = ReadTraceFile(a.trace);
  if (!trace.ok()) {
    std::cerr << trace.status().message() << "\n";
    return 1;
  }
  ReplayOptions& options = a.replay;
  for (WorkerModel* model : {&options.prefill_model, &options.decode_model}) model->block_size = a.block_size;
  options.prefill_model.blocks = a.prefill_cache_tokens / a.block_size;
  options.decode_model.blocks = a.decode_cache_tokens / a.block_size;
  options.both_model = options.decode_model;
  options.both_model.max_step_tokens = options.prefill_model.max_step_tokens;
  options.rate = a.rate > 0 ? a.rate : a.load * PromptCapacity(options, *trace);
  std::printf("%s: %lld requests at %.2f a second, %d + %d + %d workers (prefill, decode, both)\n", a.trace.c_str(),
              static_cast<long long>(options.requests), options.rate, options.prefill, options.decode, options.both);
  std::printf("%-13s %10s %10s %10s %9s %6s %8s %9s %9s %9s %8s\n", "policy", "TTFT p50", "of repeats", "TTFT p99",
              "TPOT p99", "hits", "good", "goodput", "P max/avg", "D max/avg", "wall s");
  nlohmann::json all = nlohmann::json::array();
  bool wrong = false;
  for (const std::string& name : std::vector<std::string>(absl::StrSplit(a.policies, ','))) {
    const auto policy = router::PolicyOf(name);
    if (!policy.has_value()) {
      std::cerr << "--policies: there is no " << name << "; there are slo, prefix, least-loaded and round-robin\n";
      return 1;
    }
    options.policy.policy = *policy;
    const auto began = std::chrono::steady_clock::now();
    const ReplayResult r = Replay(options, *trace, [&](int64_t ended) {
      if (!a.quiet) std::fprintf(stderr, "\r%s: %lld ended ", name.c_str(), static_cast<long long>(ended));
    });
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    if (!a.quiet) std::fprintf(stderr, "\r%40s\r", "");
    std::printf("%-13s %10.0f %10.0f %10.0f %9.1f %5.1f%% %7.1f%% %9.2f %9.2f %9.2f %8.1f\n", name.c_str(),
                r.ttft_ms.p50, r.repeat_ttft_ms.p50, r.ttft_ms.p99, r.tpot_ms.p99, 100 * r.hit_share,
                100 * r.attainment, r.goodput, r.prompt_imbalance, r.answer_imbalance, seconds);
    std::fflush(stdout);
    if (r.wrong > 0) std::cerr << r.wrong << " wrong answers; the first: " << r.first_wrong << "\n";
    wrong = wrong || r.wrong > 0;
    all.push_back(ToJson(name, options, r, seconds));
  }
  if (a.json == "-") {
    std::cout << all.dump(2) << "\n";
  } else if (!a.json.empty()) {
    std::ofstream(a.json) << all.dump(2) << "\n";
  }
  return wrong ? 1 : 0;
}

}  // namespace
}  // namespace sluice::simulation

int main(int argc, char** argv) {
  sluice::simulation::Arguments arguments;
  sluice::simulation::Defaults(arguments);
  CLI::App app{
      "Runs a recorded trace through the router's core and a simulated cluster, once for each policy, and prints what "
      "clients would have seen. Times are virtual: nothing is computed, and the same seed gives the same figures.\n\n"
      "  sluice_simulate bench/traces/mooncake_conversation_2000.jsonl --requests 20000\n"
      "  sluice_simulate bench/traces/azure2023_conv_2000.csv --prefill 800 --decode 200 --requests 1000000 --json "
      "out.json\n"};
  sluice::simulation::Describe(app, arguments);
  CLI11_PARSE(app, argc, argv);
  return sluice::simulation::Run(arguments);
}
