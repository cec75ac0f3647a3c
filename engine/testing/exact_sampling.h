// The sampler's definitions written for clarity, and a chi-square test against exact probabilities.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iostream>
#include <limits>
#include <numeric>
#include <vector>

#include "engine/sampling_params.h"
#include "gtest/gtest.h"

namespace sluice::engine {

// What a row's distribution depends on besides the logits.
struct Said {
  std::vector<int32_t> prompt, answer;
};

// The transforms in the order of sampler.h, one after the other.
inline std::vector<double> ExactProbabilities(const std::vector<float>& logits, const SamplingParams& p,
                                              const Said& said = {}) {
  std::vector<double> x(logits.begin(), logits.end());
  for (const auto& [id, bias] : p.logit_bias) x[id] += bias;
  for (int id = 0; id < int(x.size()); ++id) {
    const auto times_in = [&](const std::vector<int32_t>& ids) { return std::count(ids.begin(), ids.end(), id); };
    const double in_answer = double(times_in(said.answer));
    if (in_answer + double(times_in(said.prompt)) > 0) {
      x[id] = x[id] > 0 ? x[id] / double(p.repetition_penalty) : x[id] * double(p.repetition_penalty);
    }
    x[id] -= double(p.frequency_penalty) * in_answer;
    if (in_answer > 0) x[id] -= double(p.presence_penalty);
  }
  if (int(said.answer.size()) < p.min_tokens) {
    for (const auto& ids : {p.eos_ids, p.stop_ids}) {
      for (int32_t id : ids) x[id] = -std::numeric_limits<double>::infinity();
    }
  }
  std::vector<int> order(x.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return x[a] > x[b]; });
  std::vector<double> mass(x.size(), 0.0);
  if (p.temperature == 0) {
    mass[order[0]] = 1.0;
    return mass;
  }
  if (p.top_k > 0) order.resize(std::min<size_t>(order.size(), p.top_k));
  double total = 0;
  for (int id : order) total += mass[id] = std::exp((x[id] - x[order[0]]) / double(p.temperature));
  double before = 0;
  for (int id : order) {
    const double m = mass[id];
    if (p.top_p < 1 && before >= double(p.top_p) * total) mass[id] = 0;
    before += m;
    if (m < double(p.min_p)) mass[id] = 0;
  }
  const double kept = std::accumulate(mass.begin(), mass.end(), 0.0);
  for (double& m : mass) m /= kept;
  return mass;
}

struct ChiSquare {
  double value = 0;
  double bound = std::numeric_limits<double>::infinity();  // for p = 1e-6, by Wilson and Hilferty's approximation

  bool fits() const { return value <= bound; }
};

// The value is infinite where something was drawn that (all but) never occurs.
inline ChiSquare Compare(const std::vector<int>& count, const std::vector<double>& exact) {
  constexpr double kNever = 1e-9;
  const double draws = std::accumulate(count.begin(), count.end(), 0.0);
  ChiSquare result;
  int bins = 0;
  for (size_t i = 0; i < count.size(); ++i) {
    const double expected = exact[i] * draws;
    if (expected < kNever) {
      if (count[i] > 0) result.value = std::numeric_limits<double>::infinity();
      continue;
    }
    EXPECT_GT(expected, 5) << "bin " << i << " is too rare for the test";
    result.value += (count[i] - expected) * (count[i] - expected) / expected;
    ++bins;
  }
  const double df = bins - 1;
  result.bound = df > 0 ? df * std::pow(1 - 2 / (9 * df) + 4.7534 * std::sqrt(2 / (9 * df)), 3) : 0.0;
  return result;
}

// draw(i) for i in [0, draws) gives a bin. The seed is the draws' own, and only printed here.
template <typename DrawFunction>
void ExpectDrawsFrom(const std::vector<double>& exact, uint64_t seed, int draws, DrawFunction draw) {
  std::vector<int> count(exact.size(), 0);
  for (int i = 0; i < draws; ++i) ++count.at(draw(i));
  const ChiSquare result = Compare(count, exact);
  std::cout << "seed " << seed << ": " << draws << " draws, chi^2 " << result.value << ", bound " << result.bound
            << "\n";
  EXPECT_TRUE(result.fits()) << "seed " << seed;
}

}  // namespace sluice::engine
