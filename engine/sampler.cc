#include "engine/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <limits>
#include <optional>
#include <utility>

#include "engine/deterministic_math.h"
#include "engine/keyed_random.h"

namespace sluice::engine {
namespace {

constexpr float kNegInf = -std::numeric_limits<float>::infinity();

struct Candidate {
  int32_t id;
  float logit;
  double weight;  // probability relative to the best candidate, after temperature
};

bool Better(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

// NaN becomes -infinity. Returns the largest.
float CleanAndMax(std::span<float> logits) {
  constexpr size_t kLanes = 16;  // independent maxima, so that the loop becomes vector code
  float max[kLanes];
  std::fill_n(max, kLanes, kNegInf);
  size_t i = 0;
  for (; i + kLanes <= logits.size(); i += kLanes) {
    for (size_t l = 0; l < kLanes; ++l) {
      const float x = logits[i + l];
      logits[i + l] = x == x ? x : kNegInf;
      max[l] = x > max[l] ? x : max[l];
    }
  }
  for (; i < logits.size(); ++i) {
    if (std::isnan(logits[i])) logits[i] = kNegInf;
    max[0] = std::max(max[0], logits[i]);
  }
  return *std::max_element(max, max + kLanes);
}

// out[i] = exp((x[i] - max) / temperature), with max - max = 0 even for infinities. REQUIRES: max is the largest.
void Weights(const float* x, size_t count, float max, float temperature, double* out) {
  const double m = max, t = temperature;
  for (size_t i = 0; i < count; ++i) {
    const double exponent = (double(x[i]) - m) / t;
    out[i] = x[i] == max ? 0.0 : exponent;
  }
  for (size_t i = 0; i < count; ++i) out[i] = DetExp(out[i]);
}

// log p(id) = logit - max - log_sum
struct LogNormalizer {
  float max;
  double log_sum;

  LogNormalizer(std::span<const float> logits, float largest) : max(largest) {
    double sum = 0.0, piece[256];
    for (size_t i = 0; i < logits.size(); i += std::size(piece)) {
      const size_t count = std::min(std::size(piece), logits.size() - i);
      Weights(logits.data() + i, count, max, 1.0f, piece);
      for (size_t j = 0; j < count; ++j) sum += piece[j];
    }
    log_sum = DetLog(sum);  // sum >= 1
  }
  float LogProb(float x) const { return float((x == max ? 0.0 : double(x) - double(max)) - log_sum); }
};

// The `count` best, best first; weights are left open.
std::vector<Candidate> Best(std::span<const float> logits, int count) {
  count = std::min(count, int(logits.size()));
  if (count == 0) return {};
  std::vector<Candidate> heap;  // the best so far, the worst of them in front
  heap.reserve(count);
  for (int32_t id = 0; id < int32_t(logits.size()); ++id) {
    const Candidate c{id, logits[id], 0.0};
    if (int(heap.size()) == count) {
      if (!Better(c, heap.front())) continue;
      std::pop_heap(heap.begin(), heap.end(), Better);
      heap.pop_back();
    }
    heap.push_back(c);
    std::push_heap(heap.begin(), heap.end(), Better);
  }
  std::sort_heap(heap.begin(), heap.end(), Better);
  return heap;
}

std::vector<std::pair<int32_t, float>> Top(std::span<const float> logits, int count, const LogNormalizer& norm) {
  std::vector<std::pair<int32_t, float>> top;
  for (const Candidate& c : Best(logits, count)) top.emplace_back(c.id, norm.LogProb(c.logit));
  return top;
}

// The ids that must not be drawn yet, ascending and within the vocabulary.
std::vector<int32_t> MaskedIds(const SamplingParams& params, int generated, int vocab) {
  std::vector<int32_t> ids;
  if (generated >= params.min_tokens) return ids;
  ids = params.eos_ids;
  ids.insert(ids.end(), params.stop_ids.begin(), params.stop_ids.end());
  std::erase_if(ids, [&](int32_t id) { return id < 0 || id >= vocab; });
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

int32_t LowestUnmasked(const std::vector<int32_t>& masked, int vocab) {
  int32_t id = 0;
  for (int32_t m : masked) {
    if (m != id) break;
    ++id;
  }
  return id < vocab ? id : 0;
}

// The mass of the best tokens is summed by classes of similar weight first: whole classes are in or out, and only the
// class that crosses the line is sorted.
void KeepTopP(std::vector<Candidate>& candidates, double top_p) {
  if (top_p >= 1.0) return;
  constexpr int kClasses = 1 + (1023 << 2);  // four to an octave; weights are in (0, 1]
  const auto class_of = [](const Candidate& c) { return int(std::bit_cast<uint64_t>(c.weight) >> 50); };
  std::vector<double> mass(kClasses, 0.0);
  double total = 0.0;
  for (const Candidate& c : candidates) mass[class_of(c)] += c.weight;
  for (double m : mass) total += m;

  const double wanted = top_p * total;
  double before = 0.0;
  int crossing = kClasses - 1;
  while (crossing > 0 && before + mass[crossing] < wanted) before += mass[crossing--];
  std::vector<Candidate> edge;
  std::erase_if(candidates, [&](const Candidate& c) {
    if (class_of(c) == crossing) edge.push_back(c);
    return class_of(c) <= crossing;
  });
  std::sort(edge.begin(), edge.end(), Better);
  for (const Candidate& c : edge) {
    if (before >= wanted && !candidates.empty()) break;
    candidates.push_back(c);
    before += c.weight;
  }
}

void KeepMinP(std::vector<Candidate>& candidates, double min_p) {
  if (min_p <= 0.0) return;
  std::erase_if(candidates, [&](const Candidate& c) { return c.weight < min_p && c.weight < 1.0; });
}

int32_t Draw(const std::vector<Candidate>& candidates, KeyedUniform uniform) {
  double best = std::numeric_limits<double>::infinity();
  int32_t token = candidates.front().id;
  for (const Candidate& c : candidates) {
    const double u = uniform(uint32_t(c.id));
    // -log(u) >= 1 - u, so most tokens lose without a logarithm; the slack covers the rounding of DetLog.
    if (1.0 - u > best * c.weight * (1.0 + 1e-9)) continue;
    const double e = -DetLog(u) / c.weight;
    if (e < best || (e == best && c.id < token)) {
      best = e;
      token = c.id;
    }
  }
  return token;
}

// The tokens that temperature and top-k leave, with their weights.
std::vector<Candidate> Candidates(std::span<const float> logits, float max, const SamplingParams& params) {
  std::vector<Candidate> candidates;
  if (params.top_k > 0 && params.top_k < int(logits.size())) {
    candidates = Best(logits, params.top_k);
    for (Candidate& c : candidates) Weights(&c.logit, 1, max, params.temperature, &c.weight);
  } else {
    std::vector<double> weights(logits.size());
    Weights(logits.data(), logits.size(), max, params.temperature, weights.data());
    candidates.reserve(logits.size());
    for (int32_t id = 0; id < int32_t(logits.size()); ++id) candidates.push_back({id, logits[id], weights[id]});
  }
  std::erase_if(candidates, [](const Candidate& c) { return c.weight == 0.0; });
  return candidates;
}

}  // namespace

Sampled Sample(std::span<float> logits, const SamplingParams& params, const SampleKey& key, int generated) {
  const int vocab = int(logits.size());
  float max = CleanAndMax(logits);
  Sampled out;
  std::optional<LogNormalizer> norm;  // of the unmodified distribution: before the mask
  if (params.logprobs >= 0) {
    norm.emplace(logits, max);
    out.top = Top(logits, params.logprobs, *norm);
  }

  const std::vector<int32_t> masked = MaskedIds(params, generated, vocab);
  std::vector<float> unmasked(masked.size());
  for (size_t i = 0; i < masked.size(); ++i) unmasked[i] = std::exchange(logits[masked[i]], kNegInf);
  if (!masked.empty()) max = CleanAndMax(logits);

  if (max == kNegInf) {
    out.token = LowestUnmasked(masked, vocab);
  } else if (params.temperature > 0.0f) {
    std::vector<Candidate> candidates = Candidates(logits, max, params);
    KeepTopP(candidates, params.top_p);
    KeepMinP(candidates, params.min_p);
    const RandomKey random{key.seed, uint32_t(key.choice), uint32_t(key.position), RandomPurpose::kToken};
    out.token = Draw(candidates, KeyedUniform(random));
  } else {
    out.token = int32_t(std::find(logits.begin(), logits.end(), max) - logits.begin());  // the lowest id of equals
  }

  for (size_t i = 0; i < masked.size(); ++i) logits[masked[i]] = unmasked[i];
  if (norm) out.logprob = norm->LogProb(logits[out.token]);
  return out;
}

}  // namespace sluice::engine
