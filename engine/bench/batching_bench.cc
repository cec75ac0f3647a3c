// Continuous against static batching on a trace of arrivals and lengths: one engine each, the same requests, the same
// limits. Static: at most `--batch` requests that have arrived are admitted together, the next ones when all of them
// are done; within a batch the engine computes prompts in chunks and drops who is done, which is kinder than padding to
// the longest. Continuous: every request is the engine's from its arrival on.
//
// Time is that of the steps: each variant has its own clock, which a step moves on by what it took, and which jumps to
// the next arrival when there is nothing to do. The variant whose clock is behind takes the next step, so both meet the
// same busy and quiet moments of the machine. A step's time is that of the clock on the wall or, with --clock cpu and
// one thread, of the processor: use it where others keep the machine busy.
//
// First all requests are there at once (throughput); then they arrive with the gaps of the trace, stretched to
// fractions of what continuous batching managed.
#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <deque>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "engine/engine.h"
#include "engine/files/model_file.h"
#include "kernels/cpu/cpu_backend.h"
#include "nlohmann/json.hpp"

namespace sluice::engine {
namespace {

using nlohmann::json;

struct Flags {
  std::string compute = "int8";
  std::string model, trace = "bench/traces/azure2023_conv_2000.csv", json, clock = "wall";
  int threads = 1, requests = 64, batch = 16;
  double prompt_scale = 16, answer_scale = 4;
  std::vector<double> loads = {0.5, 0.8};
};

bool cpu_clock = false;

double Now() {
  timespec now;
  clock_gettime(cpu_clock ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &now);
  return double(now.tv_sec) + 1e-9 * double(now.tv_nsec);
}

// ---- the trace

struct Arrival {
  double at = 0;  // seconds since the first
  int prompt = 0, answer = 0;
};

// "2023-11-16 18:15:46.6805900" within one day.
double SecondsOfDay(const std::string& time) {
  int hour = 0, minute = 0;
  double second = 0;
  std::sscanf(time.c_str() + time.find(' '), " %d:%d:%lf", &hour, &minute, &second);
  return hour * 3600 + minute * 60 + second;
}

absl::StatusOr<std::vector<Arrival>> ReadTrace(const Flags& flags) {
  std::ifstream file(flags.trace);
  std::string line;
  if (!std::getline(file, line)) return absl::NotFoundError(absl::StrCat("cannot read ", flags.trace));
  std::vector<Arrival> arrivals;
  double first = 0;
  while (int(arrivals.size()) < flags.requests && std::getline(file, line)) {
    const size_t a = line.find(','), b = line.find(',', a + 1);
    if (a == std::string::npos || b == std::string::npos) return absl::InvalidArgumentError(absl::StrCat("row ", line));
    const double at = SecondsOfDay(line.substr(0, a));
    if (arrivals.empty()) first = at;
    const auto scaled = [](const std::string& tokens, double by) {
      return std::max(1, int(std::lround(std::stod(tokens) / by)));
    };
    arrivals.push_back({at - first, scaled(line.substr(a + 1, b - a - 1), flags.prompt_scale),
                        scaled(line.substr(b + 1), flags.answer_scale)});
  }
  if (int(arrivals.size()) < flags.requests) {
    return absl::InvalidArgumentError(absl::StrCat(flags.trace, " has only ", arrivals.size(), " requests"));
  }
  return arrivals;
}

// ---- one variant

struct Finished {
  double arrival = 0, first = 0, last = 0;
  int tokens = 0;
};

class Server {
 public:
  Server(Engine* engine, int vocab, int static_batch) : engine_(engine), vocab_(vocab), static_batch_(static_batch) {}

  void Offer(const std::vector<Arrival>& arrivals) {
    clock_ = 0;
    waiting_.assign(arrivals.begin(), arrivals.end());
    requests_.clear();
    open_ = 0;
    before_ = engine_->stats();
  }

  bool busy() const { return open_ > 0 || !waiting_.empty(); }
  double clock() const { return clock_; }

  absl::Status Advance() {
    if (open_ == 0) clock_ = std::max(clock_, waiting_.front().at);
    if (absl::Status s = Admit(); !s.ok()) return s;
    const double begin = Now();
    auto outputs = engine_->Step();
    clock_ += Now() - begin;
    if (!outputs.ok()) return outputs.status();
    for (const TokenOutput& out : *outputs) {
      Finished& r = requests_.at(out.id);
      if (out.index == 0) r.first = clock_;
      r.last = clock_;
      ++r.tokens;
      if (out.last) --open_;
    }
    return absl::OkStatus();
  }

  struct Work {
    uint64_t steps = 0, rows = 0;
  };
  Work work() const { return {engine_->stats().steps - before_.steps, engine_->stats().rows - before_.rows}; }
  const std::map<uint64_t, Finished>& requests() const { return requests_; }

 private:
  absl::Status Admit() {
    if (static_batch_ > 0 && open_ > 0) return absl::OkStatus();
    while (!waiting_.empty() && waiting_.front().at <= clock_ && (static_batch_ == 0 || open_ < static_batch_)) {
      const Arrival arrival = waiting_.front();
      waiting_.pop_front();
      EngineRequest r;
      r.id = ++next_id_;
      for (int i = 0; i < arrival.prompt; ++i) {
        r.tokens.push_back(int32_t((r.id * 7919 + uint64_t(i) * 104729) % uint64_t(vocab_)));
      }
      r.num_prompt_tokens = arrival.prompt;
      r.may_wait = true;
      r.sampling.max_tokens = arrival.answer;
      if (absl::Status s = engine_->Add(std::move(r)); !s.ok()) return s;
      requests_[next_id_].arrival = arrival.at;
      ++open_;
    }
    return absl::OkStatus();
  }

  Engine* engine_;
  const int vocab_, static_batch_;
  double clock_ = 0;
  std::deque<Arrival> waiting_;
  std::map<uint64_t, Finished> requests_;
  int open_ = 0;
  uint64_t next_id_ = 0;
  EngineStats before_;
};

// ---- figures

double Quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  const double place = q * double(values.size() - 1);
  const size_t below = size_t(place);
  return values[below] + (place - double(below)) * (values[std::min(below + 1, values.size() - 1)] - values[below]);
}

json Summary(const std::vector<double>& values) {
  double sum = 0;
  for (const double v : values) sum += v;
  return {{"mean", sum / double(values.size())},
          {"p50", Quantile(values, 0.5)},
          {"p90", Quantile(values, 0.9)},
          {"p99", Quantile(values, 0.99)},
          {"max", Quantile(values, 1)}};
}

json Figures(const Server& server) {
  std::vector<double> ttft, tpot, latency;
  double end = 0;
  int64_t tokens = 0;
  for (const auto& [id, r] : server.requests()) {
    ttft.push_back(r.first - r.arrival);
    latency.push_back(r.last - r.arrival);
    if (r.tokens > 1) tpot.push_back((r.last - r.first) / (r.tokens - 1));
    end = std::max(end, r.last);
    tokens += r.tokens;
  }
  const Server::Work work = server.work();
  return {{"seconds", end},
          {"requests_per_second", double(ttft.size()) / end},
          {"tokens_per_second", double(tokens) / end},
          {"steps", work.steps},
          {"rows_per_step", double(work.rows) / double(work.steps)},
          {"ttft", Summary(ttft)},
          {"tpot", Summary(tpot)},
          {"latency", Summary(latency)},
          {"latencies", latency},
          {"ttfts", ttft}};
}

void Print(const std::string& name, const json& f) {
  std::printf(
      "  %-11s %6.1f s, %6.1f tokens/s, %5llu steps of %5.1f rows; TTFT mean %6.2f p50 %6.2f p99 %6.2f; "
      "latency mean %6.2f p50 %6.2f p99 %6.2f\n",
      name.c_str(), f["seconds"].get<double>(), f["tokens_per_second"].get<double>(),
      static_cast<unsigned long long>(f["steps"].get<uint64_t>()), f["rows_per_step"].get<double>(),
      f["ttft"]["mean"].get<double>(), f["ttft"]["p50"].get<double>(), f["ttft"]["p99"].get<double>(),
      f["latency"]["mean"].get<double>(), f["latency"]["p50"].get<double>(), f["latency"]["p99"].get<double>());
  std::fflush(stdout);
}

absl::StatusOr<json> Run(const std::vector<Arrival>& arrivals, Server& continuous, Server& at_once) {
  continuous.Offer(arrivals);
  at_once.Offer(arrivals);
  while (continuous.busy() || at_once.busy()) {
    const bool first = continuous.busy() && (!at_once.busy() || continuous.clock() <= at_once.clock());
    if (absl::Status s = (first ? continuous : at_once).Advance(); !s.ok()) return s;
  }
  const json figures = {{"continuous", Figures(continuous)}, {"static", Figures(at_once)}};
  Print("continuous", figures["continuous"]);
  Print("static", figures["static"]);
  return figures;
}

absl::Status RunAll(const Flags& flags) {
  auto trace = ReadTrace(flags);
  if (!trace.ok()) return trace.status();
  auto file = OpenModel(flags.model);
  if (!file.ok()) return file.status();
  auto backend = kernels::NewCpuBackend(
      {.threads = flags.threads,
       .compute = *kernels::CpuComputeFromName(flags.compute)});
  if (!backend.ok()) return backend.status();
  EngineOptions o;
  o.max_context = std::min(2048, (*file)->config().context_length);
  o.scheduler.max_step_seqs = flags.batch;
  auto a = Engine::Create(**file, **backend, o), b = Engine::Create(**file, **backend, o);
  if (!a.ok()) return a.status();
  if (!b.ok()) return b.status();
  Server continuous(a->get(), (*file)->config().vocab, 0), at_once(b->get(), (*file)->config().vocab, flags.batch);

  int64_t prompt = 0, answer = 0;
  for (const Arrival& x : *trace) prompt += x.prompt, answer += x.answer;
  json out = {{"trace", flags.trace},
              {"requests", flags.requests},
              {"batch", flags.batch},
              {"threads", flags.threads},
              {"clock", flags.clock},
              {"numerics", std::string((*backend)->numerics_id())},
              {"prompt_scale", flags.prompt_scale},
              {"answer_scale", flags.answer_scale},
              {"mean_prompt", double(prompt) / flags.requests},
              {"mean_answer", double(answer) / flags.requests}};
  std::printf("%d requests, mean prompt %.1f, mean answer %.1f\n", flags.requests, double(prompt) / flags.requests,
              double(answer) / flags.requests);

  std::vector<Arrival> arrivals = *trace;
  for (Arrival& x : arrivals) x.at = 0;
  std::printf("all at once\n");
  auto figures = Run(arrivals, continuous, at_once);
  if (!figures.ok()) return figures.status();
  out["all_at_once"] = *figures;
  const double capacity = (*figures)["continuous"]["requests_per_second"];
  const double span = trace->back().at, rate = (flags.requests - 1) / span;
  for (const double load : flags.loads) {
    for (size_t i = 0; i < arrivals.size(); ++i) arrivals[i].at = (*trace)[i].at * rate / (load * capacity);
    std::printf("arrivals at %.2f of %.3f requests/s\n", load, capacity);
    figures = Run(arrivals, continuous, at_once);
    if (!figures.ok()) return figures.status();
    (*figures)["load"] = load;
    (*figures)["requests_per_second"] = load * capacity;
    out["loads"].push_back(*figures);
  }
  if (!flags.json.empty()) std::ofstream(flags.json) << out.dump(1) << "\n";
  return absl::OkStatus();
}

}  // namespace
}  // namespace sluice::engine

int main(int argc, char** argv) {
  CLI::App app("Continuous against static batching on a trace");
  sluice::engine::Flags flags;
  app.add_option("model", flags.model, "GGUF file")->required();
  app.add_option("--trace", flags.trace, "CSV of TIMESTAMP,ContextTokens,GeneratedTokens");
  app.add_option("--requests", flags.requests, "The first so many of the trace")->check(CLI::Range(2, 1000000));
  app.add_option("--batch", flags.batch, "Sequences at once, of both variants")->check(CLI::Range(1, 1024));
  app.add_option("--prompt-scale", flags.prompt_scale, "Prompts are so much shorter")->check(CLI::PositiveNumber);
  app.add_option("--answer-scale", flags.answer_scale, "Answers are so much shorter")->check(CLI::PositiveNumber);
  app.add_option("--load", flags.loads, "Arrival rates, as fractions of the capacity of continuous batching");
  app.add_option("--compute", flags.compute, "Arithmetic")->check(CLI::IsMember({"int8", "native", "bf16", "f32"}));
  app.add_option("--threads", flags.threads, "Compute threads")->check(CLI::Range(1, 1024));
  app.add_option("--clock", flags.clock, "wall, or cpu: processor time, for one thread")
      ->check(CLI::IsMember({"wall", "cpu"}));
  app.add_option("--json", flags.json, "Write the figures to this file");
  CLI11_PARSE(app, argc, argv);
  if (flags.clock == "cpu" && flags.threads != 1) {
    std::cerr << "batching_bench: --clock cpu needs --threads 1\n";
    return 2;
  }
  sluice::engine::cpu_clock = flags.clock == "cpu";
  const absl::Status status = sluice::engine::RunAll(flags);
  if (status.ok()) return 0;
  std::cerr << "batching_bench: " << status.message() << "\n";
  return 1;
}
