// Time of the sampler for the rows of one decode step: eight rows over a vocabulary of 49,152, shaped like a language
// model's (a few good tokens, a bell of the others). The copy of the logits, which the sampler may overwrite, is in.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "engine/sampler.h"

namespace sluice::engine {
namespace {

constexpr int kRows = 8, kVocab = 49152;

const std::vector<float>& Logits() {
  static const std::vector<float> logits = [] {
    std::vector<float> rows(size_t{kRows} * kVocab);
    std::mt19937 random(1);
    std::normal_distribution<float> bell(0.0f, 2.5f);
    for (float& x : rows) x = bell(random);
    for (int row = 0; row < kRows; ++row) {
      for (int i = 0; i < 20; ++i) rows[size_t(row) * kVocab + random() % kVocab] = 16.0f - 0.4f * float(i);
    }
    return rows;
  }();
  return logits;
}

// A prompt of 1,000 tokens and an answer of 500.
const std::vector<int32_t>& Said() {
  static const std::vector<int32_t> said = [] {
    std::vector<int32_t> tokens(1500);
    std::mt19937 random(2);
    for (int32_t& t : tokens) t = int32_t(random() % kVocab);
    return tokens;
  }();
  return said;
}

void Run(benchmark::State& state, const SamplingParams& params) {
  std::vector<float> row(kVocab);
  TokenCounts counts;
  if (params.penalizes()) counts.CatchUp(Said(), 1000);
  int position = 0;
  for (auto _ : state) {
    for (int i = 0; i < kRows; ++i) {
      std::copy_n(Logits().begin() + i * kVocab, kVocab, row.begin());
      benchmark::DoNotOptimize(Sample(row, params, {7, i, position}, position, &counts));
    }
    ++position;
  }
}

BENCHMARK_CAPTURE(Run, greedy, {})->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(Run, greedy_logprobs, {.logprobs = 0})->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(Run, greedy_top_5_logprobs, {.logprobs = 5})->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(Run, greedy_penalties, {.repetition_penalty = 1.1f, .frequency_penalty = 0.1f})
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(Run, temperature, {.temperature = 1.0f})->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(Run, top_k_40, {.temperature = 1.0f, .top_k = 40})->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(Run, top_k_1000, {.temperature = 1.0f, .top_k = 1000})->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(Run, top_p_95, {.temperature = 1.0f, .top_p = 0.95f})->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(Run, min_p_05, {.temperature = 1.0f, .min_p = 0.05f})->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(Run, chat_defaults, {.temperature = 0.7f, .top_p = 0.9f, .top_k = 40})->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace sluice::engine

BENCHMARK_MAIN();
