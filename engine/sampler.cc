#include "engine/sampler.h"

#include <algorithm>
#include <cmath>
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

// log p(id) = logit - max - log_sum, with max - max = 0 even for infinities.
struct LogNormalizer {
  float max;
  double log_sum;

  explicit LogNormalizer(std::span<const float> logits) : max(*std::max_element(logits.begin(), logits.end())) {
    double sum = 0.0;
    for (float x : logits) sum += DetExp(Shifted(x));
    log_sum = DetLog(sum);  // sum >= 1
  }
  double Shifted(float x) const { return x == max ? 0.0 : double(x) - double(max); }
  float LogProb(float x) const { return float(Shifted(x) - log_sum); }
};

std::vector<std::pair<int32_t, float>> Top(std::span<const float> logits, int count, const LogNormalizer& norm) {
  count = std::min(count, int(logits.size()));
  if (count == 0) return {};
  std::vector<Candidate> heap;  // the `count` best so far, the worst of them in front
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
  std::sort(heap.begin(), heap.end(), Better);
  std::vector<std::pair<int32_t, float>> top;
  top.reserve(count);
  for (const Candidate& c : heap) top.emplace_back(c.id, norm.LogProb(c.logit));
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

void KeepTopK(std::vector<Candidate>& candidates, int top_k) {
  if (top_k <= 0 || top_k >= int(candidates.size())) return;
  std::nth_element(candidates.begin(), candidates.begin() + top_k, candidates.end(), Better);
  candidates.resize(top_k);
  std::sort(candidates.begin(), candidates.end(), Better);  // a defined order for the sums that follow
}

// Sorts only as much of the list as the nucleus needs.
void KeepTopP(std::vector<Candidate>& candidates, double top_p) {
  if (top_p >= 1.0) return;
  double total = 0.0;
  for (const Candidate& c : candidates) total += c.weight;
  const double wanted = top_p * total;
  double mass = 0.0;
  size_t kept = 0, sorted = 0, piece = 128;
  while (kept < candidates.size() && (kept == 0 || mass < wanted)) {
    if (kept == sorted) {
      const auto begin = candidates.begin() + sorted;
      sorted = std::min(candidates.size(), sorted + piece);
      const auto end = candidates.begin() + sorted;
      if (end != candidates.end()) std::nth_element(begin, end, candidates.end(), Better);
      std::sort(begin, end, Better);
      piece *= 4;
    }
    mass += candidates[kept++].weight;
  }
  candidates.resize(kept);
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

// REQUIRES: max is the largest logit and above -infinity.
int32_t SampleByTemperature(std::span<const float> logits, float max, const SamplingParams& params,
                            const SampleKey& key) {
  const auto exponent = [&](float x) {
    return x == max ? 0.0 : (double(x) - double(max)) / double(params.temperature);
  };
  std::vector<Candidate> candidates;
  candidates.reserve(logits.size());
  for (int32_t id = 0; id < int32_t(logits.size()); ++id) {
    if (logits[id] == kNegInf) continue;
    candidates.push_back({id, logits[id], 0.0});
  }
  KeepTopK(candidates, params.top_k);
  for (Candidate& c : candidates) c.weight = DetExp(exponent(c.logit));
  std::erase_if(candidates, [](const Candidate& c) { return c.weight == 0.0; });
  KeepTopP(candidates, params.top_p);
  KeepMinP(candidates, params.min_p);
  return Draw(candidates,
              KeyedUniform({key.seed, uint32_t(key.choice), uint32_t(key.position), RandomPurpose::kToken}));
}

}  // namespace

Sampled Sample(std::span<float> logits, const SamplingParams& params, const SampleKey& key, int generated) {
  const int vocab = int(logits.size());
  for (float& x : logits) {
    if (std::isnan(x)) x = kNegInf;
  }
  Sampled out;
  std::optional<LogNormalizer> norm;  // of the unmodified distribution: before the mask
  if (params.logprobs >= 0) {
    norm.emplace(logits);
    out.top = Top(logits, params.logprobs, *norm);
  }

  const std::vector<int32_t> masked = MaskedIds(params, generated, vocab);
  std::vector<float> unmasked(masked.size());
  for (size_t i = 0; i < masked.size(); ++i) unmasked[i] = std::exchange(logits[masked[i]], kNegInf);

  const auto best = std::max_element(logits.begin(), logits.end());  // the first of equals: the lowest id
  if (*best == kNegInf) {
    out.token = LowestUnmasked(masked, vocab);
  } else if (params.temperature > 0.0f) {
    out.token = SampleByTemperature(logits, *best, params, key);
  } else {
    out.token = int32_t(best - logits.begin());
  }

  for (size_t i = 0; i < masked.size(); ++i) logits[masked[i]] = unmasked[i];
  if (norm) out.logprob = norm->LogProb(logits[out.token]);
  return out;
}

}  // namespace sluice::engine
