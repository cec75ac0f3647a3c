// Tokens per second of one engine on one model, in each mode of arithmetic: prefill of 512 tokens, and decoding with 1,
// 8 and 32 requests at once.
// Greedy, no log-probabilities, no drafts, no cached prefixes. Every figure is the median of the repetitions, with the
// best beside it.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "engine/engine.h"
#include "engine/files/model_file.h"
#include "kernels/cpu/cpu_backend.h"
#include "nlohmann/json.hpp"

namespace sluice::engine {
namespace {

double Seconds(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

struct Rate {
  std::string name;
  std::vector<double> tokens_per_second;

  double median() const {
    std::vector<double> sorted = tokens_per_second;
    std::sort(sorted.begin(), sorted.end());
    return sorted[sorted.size() / 2];
  }
  double best() const { return *std::max_element(tokens_per_second.begin(), tokens_per_second.end()); }
};

class Bench {
 public:
  Bench(Engine* engine, int vocab) : engine_(engine), vocab_(vocab) {}

  double Prefill(int tokens) {
    Add(tokens, 1);
    return tokens / Seconds([&] { Drain(); });
  }

  // `batch` requests of `context` tokens each. The clock runs for `tokens` steps in which each of them yields one.
  // Prompts are computed some at a time and those that are done decode beside the others: contexts are up to some
  // tokens longer.
  double Decode(int batch, int context, int tokens) {
    const uint64_t first = next_id_;
    for (int i = 0; i < batch; ++i) Add(context, tokens + 2 * batch + 2);
    while (status_.ok() && engine_->stats().waiting_tokens > 0) Step();
    Step();  // the last prompt's second token: all decode from here on
    int yielded = 0;
    const double seconds = Seconds([&] {
      for (int i = 0; i < tokens; ++i) yielded += Step();
    });
    if (status_.ok() && yielded != batch * tokens) {
      status_ = absl::InternalError("steps of " + std::to_string(batch) + " requests yielded " +
                                    std::to_string(yielded) + " tokens, not " + std::to_string(batch * tokens));
    }
    for (uint64_t id = first; id < next_id_; ++id) engine_->Cancel(id);
    return yielded / seconds;
  }

  const absl::Status& status() const { return status_; }

 private:
  void Add(int prompt, int max_tokens) {
    EngineRequest r;
    r.id = next_id_++;
    for (int i = 0; i < prompt; ++i) r.tokens.push_back(int32_t((r.id * 7919 + uint64_t(i) * 104729) % vocab_));
    r.num_prompt_tokens = prompt;
    r.sampling.max_tokens = max_tokens;
    r.sampling.ignore_eos = true;
    status_.Update(engine_->Add(std::move(r)));
  }
  // How many tokens it yielded.
  int Step() {
    auto outputs = engine_->Step();
    status_.Update(outputs.status());
    return outputs.ok() ? int(outputs->size()) : 0;
  }
  void Drain() {
    while (status_.ok() && engine_->has_work()) Step();
  }

  Engine* engine_;
  int vocab_;
  uint64_t next_id_ = 1;
  absl::Status status_;
};

struct Flags {
  std::string model;
  std::vector<std::string> compute = {"int8", "f32"};
  int threads = 1, repetitions = 3;
  bool json = false;
};

// One mode of arithmetic with its engine and what was measured.
struct Mode {
  std::string name;
  std::unique_ptr<kernels::Backend> backend;
  std::unique_ptr<Engine> engine;
  std::unique_ptr<Bench> bench;
  std::vector<Rate> rates;
};

absl::StatusOr<Mode> MakeMode(const ModelFile& file, const std::string& name, int threads) {
  Mode mode{.name = name};
  const bool kv8 = name.ends_with("+kv8");  // K and V in int8
  const std::string compute = kv8 ? name.substr(0, name.size() - 4) : name;
  kernels::CpuOptions options{.threads = threads, .compute = *kernels::CpuComputeFromName(compute)};
  if (kv8) options.kv = kernels::KvDType::kInt8;
  auto backend = kernels::NewCpuBackend(options);
  if (!backend.ok()) return backend.status();
  mode.backend = *std::move(backend);
  auto engine =
      Engine::Create(file, *mode.backend,
                     {.max_kv_bytes = int64_t{2} << 30, .max_context = std::min(file.config().context_length, 2048)});
  if (!engine.ok()) return engine.status();
  mode.engine = *std::move(engine);
  mode.bench = std::make_unique<Bench>(mode.engine.get(), file.config().vocab);
  return mode;
}

struct Measurement {
  std::string name;
  std::function<double(Bench&)> run;
};

std::vector<Measurement> Measurements() {
  std::vector<Measurement> all = {{"prefill 512", [](Bench& b) { return b.Prefill(512); }},
                                  {"decode 1, context 0", [](Bench& b) { return b.Decode(1, 2, 64); }}};
  for (const int batch : {1, 8, 32}) {
    all.push_back(
        {"decode " + std::to_string(batch) + ", context 256", [=](Bench& b) { return b.Decode(batch, 256, 64); }});
  }
  return all;
}

absl::Status Run(const Flags& flags) {
  auto file = OpenModel(flags.model);
  if (!file.ok()) return file.status();
  std::vector<Mode> modes;
  for (const std::string& name : flags.compute) {
    auto mode = MakeMode(**file, name, flags.threads);
    if (!mode.ok()) return mode.status();
    modes.push_back(*std::move(mode));
  }
  const std::vector<Measurement> measurements = Measurements();
  for (Mode& mode : modes) {
    for (const Measurement& m : measurements) mode.rates.push_back({m.name, {}});
  }
  for (Mode& mode : modes) mode.bench->Decode(1, 16, 4);  // first touches of weights and scratch are not measured
  for (int i = 0; i < flags.repetitions; ++i) {           // interleaved, so that a busy minute hits all alike
    for (size_t k = 0; k < measurements.size(); ++k) {
      for (Mode& mode : modes) {
        mode.rates[k].tokens_per_second.push_back(measurements[k].run(*mode.bench));
        if (!mode.bench->status().ok()) return mode.bench->status();
      }
    }
  }
  nlohmann::json out = {{"threads", flags.threads}, {"repetitions", flags.repetitions}};
  for (const Mode& mode : modes) {
    if (!flags.json) std::printf("%s, tokens/s\n", std::string(mode.backend->numerics_id()).c_str());
    for (const Rate& r : mode.rates) {
      if (!flags.json) std::printf("  %-24s %8.1f (best %.1f)\n", r.name.c_str(), r.median(), r.best());
      out["tokens_per_second"][mode.name][r.name] = {{"median", r.median()}, {"best", r.best()}};
    }
  }
  if (flags.json) std::cout << out.dump(2) << "\n";
  return absl::OkStatus();
}

}  // namespace
}  // namespace sluice::engine

int main(int argc, char** argv) {
  CLI::App app("Tokens per second of one engine on one model");
  sluice::engine::Flags flags;
  app.add_option("model", flags.model, "GGUF file")->required();
  app.add_option("--compute", flags.compute, "Arithmetic, measured in turns; +kv8: K and V in int8")
      ->delimiter(',')
      ->check(CLI::IsMember({"int8", "int8+kv8", "native", "bf16", "f32"}));
  app.add_option("--threads", flags.threads, "Compute threads")->check(CLI::Range(1, 1024));
  app.add_option("--repetitions", flags.repetitions, "Repetitions of every measurement")->check(CLI::Range(1, 1000));
  app.add_flag("--json", flags.json, "Print one JSON object");
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = sluice::engine::Run(flags);
  if (status.ok()) return 0;
  std::cerr << "engine_bench: " << status.message() << "\n";
  return 1;
}
