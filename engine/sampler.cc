#include "engine/sampler.h"

#include <glog/logging.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>

#include "engine/deterministic_math.h"
#include "engine/keyed_random.h"
#include "engine/logit_blocks.h"
#include "engine/sampler_draw.h"
#include "engine/sampler_edits.h"
#include "engine/sampler_loops.h"
#include "kernels/sampling_math.h"

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

// log p(id) = logit - max - log_sum
struct LogNormalizer {
  float max;
  double log_sum;

  LogNormalizer(std::span<const float> logits, float largest)
      : max(largest), log_sum(DetLog(ExpSum(logits, largest))) {}
  float LogProb(float x) const { return float((x == max ? 0.0 : double(x) - double(max)) - log_sum); }
};

// So many are kept in a heap.
constexpr int kFew = 64;

// The `count` best, best first; weights are left open. For a few: a heap, which most tokens do not enter.
std::vector<Candidate> BestFew(const LogitBlocks& row, int count) {
  std::vector<Candidate> heap;  // the best so far, the worst of them in front
  heap.reserve(size_t(count));
  row.AtLeast(row.LowerBound(count), [&](int32_t id, float logit) {
    if (int(heap.size()) == count) {
      if (!(logit > heap.front().logit)) return;  // ids ascend: an equal one is no better
      std::pop_heap(heap.begin(), heap.end(), Better);
      heap.pop_back();
    }
    heap.push_back({id, logit, 0.0});
    std::push_heap(heap.begin(), heap.end(), Better);
  });
  std::sort_heap(heap.begin(), heap.end(), Better);
  return heap;
}

// Ascending with x, in 2^12 classes: sign, exponent and three bits of the mantissa. -0 is below +0.
uint32_t LogitClass(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  return (bits >> 31 ? ~bits : bits | 0x80000000u) >> 20;
}

// For many: only the tokens from the class that the last of them is in are sorted.
std::vector<Candidate> BestMany(std::span<const float> logits, int count) {
  std::vector<int> size(1 << 12, 0);
  for (float x : logits) ++size[LogitClass(x + 0.0f)];  // -0 becomes +0, its equal
  uint32_t least = (1 << 12) - 1;
  for (int better = size[least]; better < count; better += size[least]) --least;
  std::vector<Candidate> best;
  for (int32_t id = 0; id < int32_t(logits.size()); ++id) {
    if (LogitClass(logits[id] + 0.0f) >= least) best.push_back({id, logits[id], 0.0});
  }
  std::partial_sort(best.begin(), best.begin() + count, best.end(), Better);
  best.resize(count);
  return best;
}

std::vector<Candidate> Best(const LogitBlocks& row, int count) {
  count = std::min(count, row.size());
  if (count <= 0) return {};
  return count <= kFew ? BestFew(row, count) : BestMany(row.logits(), count);
}

std::vector<std::pair<int32_t, float>> Top(const LogitBlocks& row, int count, const LogNormalizer& norm) {
  std::vector<std::pair<int32_t, float>> top;
  for (const Candidate& c : Best(row, count)) top.emplace_back(c.id, norm.LogProb(c.logit));
  return top;
}

// ---- what is left to draw from ----

void SetWeights(std::vector<Candidate>& candidates, float max, float temperature) {
  std::vector<float> x;
  x.reserve(candidates.size());
  for (const Candidate& c : candidates) x.push_back(c.logit);
  std::vector<double> weights(x.size());
  ExpWeights(x, max, temperature, weights.data());
  for (size_t i = 0; i < x.size(); ++i) candidates[i].weight = weights[i];
}

// REQUIRES: sorted, best first; `before` is the mass of all that are better. Keeps the first that reach `wanted`.
void KeepMass(std::vector<Candidate>& candidates, uint64_t before, uint64_t wanted, double scale) {
  size_t kept = 0;
  while (kept < candidates.size() && before < wanted) before += kernels::MassOf(candidates[kept++].weight, scale);
  candidates.resize(kept);
}

std::vector<Candidate> TopKCandidates(const LogitBlocks& row, float max, const SamplingParams& params) {
  std::vector<Candidate> candidates = Best(row, params.top_k);
  SetWeights(candidates, max, params.temperature);
  if (params.top_p < 1.0f) {
    const double scale = kernels::MassScale(row.size());
    uint64_t total = 0;
    for (const Candidate& c : candidates) total += kernels::MassOf(c.weight, scale);
    KeepMass(candidates, 0, kernels::NucleusMass(total, params.top_p), scale);
  }
  return candidates;
}

// The mass of each class of the whole vocabulary.
std::vector<uint64_t> ClassMasses(std::span<const float> logits, float max, float temperature, double scale) {
  constexpr size_t kPiece = 256;
  std::array<double, kPiece> weights;
  std::array<int, kPiece> classes;
  std::vector<uint64_t> mass(kernels::kWeightClasses, 0);
  for (size_t begin = 0; begin < logits.size(); begin += kPiece) {
    const std::span<const float> piece = logits.subspan(begin, std::min(kPiece, logits.size() - begin));
    ExpWeights(piece, max, temperature, weights.data());
    WeightClasses(piece, max, temperature, classes.data());
    for (size_t i = 0; i < piece.size(); ++i) mass[size_t(classes[i])] += kernels::MassOf(weights[i], scale);
  }
  return mass;
}

// No logit of a class up to `last` is smaller.
float LeastOfClass(int last, float max, float temperature) {
  if (last == kernels::kWeightClasses - 1) return kNegInf;
  return std::min(max, max - float(last + 2) / kernels::WeightClassScale(temperature));  // one class of slack
}

// Without top-k: only in the class where top-p cuts does the order matter.
std::vector<Candidate> TopPCandidates(const LogitBlocks& row, float max, const SamplingParams& params) {
  const double scale = kernels::MassScale(row.size());
  const std::vector<uint64_t> mass = ClassMasses(row.logits(), max, params.temperature, scale);
  const uint64_t total = std::accumulate(mass.begin(), mass.end(), uint64_t{0});
  const uint64_t wanted = kernels::NucleusMass(total, params.top_p);
  uint64_t before = 0;
  int last = 0;
  while (before + mass[size_t(last)] < wanted) before += mass[size_t(last++)];
  std::vector<Candidate> candidates, edge;
  const float class_scale = kernels::WeightClassScale(params.temperature);
  row.AtLeast(LeastOfClass(last, max, params.temperature), [&](int32_t id, float logit) {
    const int c = kernels::WeightClass(logit, max, class_scale);
    if (c <= last) (c < last ? candidates : edge).push_back({id, logit, 0.0});
  });
  SetWeights(candidates, max, params.temperature);
  SetWeights(edge, max, params.temperature);
  std::sort(edge.begin(), edge.end(), Better);
  KeepMass(edge, before, wanted, scale);
  candidates.insert(candidates.end(), edge.begin(), edge.end());
  return candidates;
}

// Everything that is not far below min_p of the best; the exact cut is the caller's.
std::vector<Candidate> MinPCandidates(const LogitBlocks& row, float max, const SamplingParams& params) {
  constexpr double kSlack = 1e-3;  // in the exponent; far above all rounding
  double least = kNegInf;
  if (params.min_p > 0.0f) least = double(max) + double(params.temperature) * (DetLog(params.min_p) - kSlack);
  std::vector<Candidate> candidates;
  const float below = std::min(std::nextafter(float(least), kNegInf), max);  // no larger than `least`
  row.AtLeast(below, [&](int32_t id, float logit) {
    if (double(logit) >= least || logit == max) candidates.push_back({id, logit, 0.0});
  });
  SetWeights(candidates, max, params.temperature);
  return candidates;
}

bool CutsTopK(int vocab, const SamplingParams& params) {
  return params.top_k > 0 && params.top_k < vocab;
}

// What temperature, top-k, top-p and min-p leave. REQUIRES: temperature > 0; max > -infinity.
std::vector<Candidate> Candidates(const LogitBlocks& row, float max, const SamplingParams& params) {
  std::vector<Candidate> candidates = CutsTopK(row.size(), params) ? TopKCandidates(row, max, params)
                                      : params.top_p < 1.0f        ? TopPCandidates(row, max, params)
                                                                   : MinPCandidates(row, max, params);
  std::erase_if(candidates, [&](const Candidate& c) {
    return c.weight == 0.0 || (c.weight < double(params.min_p) && c.weight < 1.0);
  });
  return candidates;
}

// ---- the draw ----

int32_t Draw(const std::vector<Candidate>& candidates, const RandomKey& key) {
  KeyedUniform uniform(key);
  ExponentialRace race;
  for (const Candidate& c : candidates) race.Offer(c.id, c.weight, uniform(uint32_t(c.id)));
  return race.winner();
}

// Draw of the whole vocabulary, without candidates. The most probable token goes first: after it few others can win.
int32_t DrawAny(const LogitBlocks& row, float max, float temperature, const RandomKey& key) {
  const std::span<const float> logits = row.logits();
  constexpr size_t kPiece = 256;
  std::array<double, kPiece> weights, uniforms;
  ExponentialRace race;
  const int32_t likeliest = row.First(max);
  race.Offer(likeliest, 1.0, KeyedUniform(key)(uint32_t(likeliest)));
  for (size_t begin = 0; begin < logits.size(); begin += kPiece) {
    const std::span<const float> piece = logits.subspan(begin, std::min(kPiece, logits.size() - begin));
    FillUniform(key, uint32_t(begin), std::span(uniforms).first(piece.size()));
    if (!AnyMayWin(piece, max, temperature, uniforms.data(), race.best())) continue;
    ExpWeights(piece, max, temperature, weights.data());
    for (size_t i = 0; i < piece.size(); ++i) {
      if (weights[i] > 0.0) race.Offer(int32_t(begin + i), weights[i], uniforms[i]);
    }
  }
  return race.winner();
}

// Whether the best few are enough: nothing else of the row is read then.
bool NeedsFew(int vocab, const SamplingParams& params) {
  return params.temperature == 0.0f || (CutsTopK(vocab, params) && params.top_k <= kFew) ||
         (!CutsTopK(vocab, params) && params.top_p >= 1.0f && params.min_p > 0.0f);
}

int32_t DrawToken(const LogitBlocks& row, float max, const SamplingParams& params, const SampleKey& key) {
  if (params.temperature == 0.0f) return row.First(max);
  const RandomKey random{key.seed, uint32_t(key.choice), uint32_t(key.position), RandomPurpose::kToken};
  if (!CutsTopK(row.size(), params) && params.top_p >= 1.0f && params.min_p <= 0.0f) {
    return DrawAny(row, max, params.temperature, random);
  }
  return Draw(Candidates(row, max, params), random);
}

// A row without NaN, and its blocks.
struct CleanRow {
  explicit CleanRow(std::span<float> logits)
      : maxima(size_t(kernels::NumLogitBlocks(int64_t(logits.size())))), max(CleanAndMax(logits, maxima)) {}

  std::vector<float> maxima;
  float max;
};

}  // namespace

Sampled Sample(std::span<float> logits, const SamplingParams& params, const SampleKey& key, int generated,
               const TokenCounts* counts, std::span<const float> maxima) {
  Sampled out;
  std::optional<CleanRow> clean;
  std::optional<LogNormalizer> norm;
  if (params.logprobs >= 0) {
    clean.emplace(logits);
    norm.emplace(logits, clean->max);
    out.top = Top(LogitBlocks(logits, clean->maxima), params.logprobs, *norm);
  }
  {
    const LogitEdits edits(logits, params, generated, counts);
    if (!edits.empty() || (!clean && (maxima.empty() || !NeedsFew(int(logits.size()), params)))) clean.emplace(logits);
    if (clean) maxima = clean->maxima;
    const float max = clean ? clean->max : *std::max_element(maxima.begin(), maxima.end());
    out.token = max == kNegInf ? edits.LowestUnmasked() : DrawToken(LogitBlocks(logits, maxima), max, params, key);
  }
  if (norm) out.logprob = norm->LogProb(logits[size_t(out.token)]);
  return out;
}

std::vector<double> Distribution(std::span<float> logits, const SamplingParams& params, int generated,
                                 const TokenCounts* counts) {
  std::vector<double> p(logits.size(), 0.0);
  (void)CleanRow(logits);
  const LogitEdits edits(logits, params, generated, counts);
  const CleanRow clean(logits);
  const LogitBlocks row(logits, clean.maxima);
  if (clean.max == kNegInf || params.temperature == 0.0f) {
    p[size_t(clean.max == kNegInf ? edits.LowestUnmasked() : row.First(clean.max))] = 1.0;
    return p;
  }
  const std::vector<Candidate> candidates = Candidates(row, clean.max, params);
  double total = 0.0;
  for (const Candidate& c : candidates) total += c.weight;
  for (const Candidate& c : candidates) p[c.id] = c.weight / total;
  return p;
}

Sampled Score(std::span<float> logits, int32_t token, int top) {
  CHECK(token >= 0 && size_t(token) < logits.size());
  const CleanRow clean(logits);
  const LogNormalizer norm(logits, clean.max);
  return {token, norm.LogProb(logits[size_t(token)]), Top(LogitBlocks(logits, clean.maxima), top, norm)};
}

}  // namespace sluice::engine
