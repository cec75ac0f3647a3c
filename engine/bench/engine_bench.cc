// Tokens per second of one engine on one model: prefill of 512 tokens, and decoding with 1 and 8 requests at once.
// Greedy, no log-probabilities. Every figure is the median of the repetitions, with the best beside it.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <iostream>
#include <string>
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

  // The prompts are computed before the clock starts.
  double Decode(int batch, int tokens) {
    for (int i = 0; i < batch; ++i) Add(32, tokens + 1);
    while (engine_->stats().waiting_tokens > 0) Step();
    return double(batch) * tokens / Seconds([&] { Drain(); });
  }

  const absl::Status& status() const { return status_; }

 private:
  void Add(int prompt, int max_tokens) {
    EngineRequest r;
    r.id = next_id_++;
    for (int i = 0; i < prompt; ++i) r.tokens.push_back(int32_t((r.id * 7919 + uint64_t(i) * 104729) % vocab_));
    r.num_prompt_tokens = prompt;
    r.sampling.max_tokens = max_tokens;
    status_.Update(engine_->Add(std::move(r)));
  }
  void Step() { status_.Update(engine_->Step().status()); }
  void Drain() {
    while (status_.ok() && engine_->has_work()) Step();
  }

  Engine* engine_;
  int vocab_;
  uint64_t next_id_ = 1;
  absl::Status status_;
};

absl::Status Run(const std::string& model, int threads, int repetitions, bool as_json) {
  auto file = OpenModel(model);
  if (!file.ok()) return file.status();
  auto backend = kernels::NewCpuBackend({.threads = threads});
  if (!backend.ok()) return backend.status();
  auto engine = Engine::Create(**file, **backend, {.max_context = std::min((*file)->config().context_length, 2048)});
  if (!engine.ok()) return engine.status();

  Bench bench(engine->get(), (*file)->config().vocab);
  std::vector<Rate> rates = {{"prefill_512", {}}, {"decode_batch_1", {}}, {"decode_batch_8", {}}};
  for (int i = 0; i < repetitions; ++i) {  // interleaved, so that a busy minute hits all alike
    rates[0].tokens_per_second.push_back(bench.Prefill(512));
    rates[1].tokens_per_second.push_back(bench.Decode(1, 64));
    rates[2].tokens_per_second.push_back(bench.Decode(8, 64));
    if (!bench.status().ok()) return bench.status();
  }
  if (as_json) {
    nlohmann::json out = {{"model", model},
                          {"threads", threads},
                          {"numerics", std::string((*backend)->numerics_id())},
                          {"repetitions", repetitions}};
    for (const Rate& r : rates) out["tokens_per_second"][r.name] = {{"median", r.median()}, {"best", r.best()}};
    std::cout << out.dump(2) << "\n";
  } else {
    for (const Rate& r : rates) std::printf("%-16s %8.1f tokens/s (best %.1f)\n", r.name.c_str(), r.median(), r.best());
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace sluice::engine

int main(int argc, char** argv) {
  CLI::App app("Tokens per second of one engine on one model");
  std::string model;
  int threads = 1, repetitions = 3;
  bool as_json = false;
  app.add_option("model", model, "GGUF file")->required();
  app.add_option("--threads", threads, "Compute threads")->check(CLI::Range(1, 1024));
  app.add_option("--repetitions", repetitions, "Repetitions of every measurement")->check(CLI::Range(1, 1000));
  app.add_flag("--json", as_json, "Print one JSON object");
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = sluice::engine::Run(model, threads, repetitions, as_json);
  if (status.ok()) return 0;
  std::cerr << "engine_bench: " << status.message() << "\n";
  return 1;
}
