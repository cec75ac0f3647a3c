#include "engine/speculation/rejection_rule.h"

#include <glog/logging.h>

#include <algorithm>
#include <utility>

#include "engine/keyed_random.h"
#include "engine/sampler_draw.h"

namespace sluice::engine {
namespace {

RandomKey KeyOf(const SampleKey& key, RandomPurpose purpose) {
  return {key.seed, uint32_t(key.choice), uint32_t(key.position), purpose};
}

}  // namespace

double AcceptanceProbability(std::span<const double> p, std::span<const double> q) {
  CHECK_EQ(p.size(), q.size());
  double sum = 0.0;
  for (size_t i = 0; i < p.size(); ++i) sum += std::min(p[i], q[i]);
  return sum;
}

std::vector<double> Residual(std::span<const double> p, std::span<const double> q) {
  CHECK_EQ(p.size(), q.size());
  std::vector<double> residual(p.size());
  double sum = 0.0;
  for (size_t i = 0; i < p.size(); ++i) sum += residual[i] = std::max(p[i] - q[i], 0.0);
  if (sum == 0.0) return {p.begin(), p.end()};
  for (double& r : residual) r /= sum;
  return residual;
}

Verdict JudgeDraft(std::span<const double> p, std::span<const double> q, int32_t draft, const SampleKey& key) {
  CHECK_EQ(p.size(), q.size());
  CHECK(draft >= 0 && size_t(draft) < p.size());
  const double u = KeyedUniform(KeyOf(key, RandomPurpose::kAccept))(0);
  if (u * q[draft] < p[draft]) return {true, draft};
  return {false, DrawFrom(Residual(p, q), KeyOf(key, RandomPurpose::kResidual))};
}

std::vector<Sampled> VerifyByRejection(std::span<float> logits, std::span<const int32_t> drafts,
                                       std::span<const double> q, const SamplingParams& params, const SampleKey& first,
                                       int generated, TokenCounts* counts) {
  CHECK_EQ(logits.size() % (drafts.size() + 1), 0u);
  const size_t vocab = logits.size() / (drafts.size() + 1);
  CHECK(q.empty() || q.size() == drafts.size() * vocab);
  std::vector<double> one_hot(q.empty() ? vocab : 0, 0.0);
  std::vector<Sampled> tokens;
  for (size_t i = 0; i <= drafts.size(); ++i) {
    const SampleKey key{first.seed, first.choice, first.position + int(i)};
    const std::span<float> row = logits.subspan(i * vocab, vocab);
    const int so_far = generated + int(i);
    bool accepted = false;
    if (i < drafts.size()) {
      const std::vector<double> p = Distribution(row, params, so_far, counts);
      if (q.empty()) one_hot[drafts[i]] = 1.0;
      const Verdict verdict =
          JudgeDraft(p, q.empty() ? std::span<const double>(one_hot) : q.subspan(i * vocab, vocab), drafts[i], key);
      if (q.empty()) one_hot[drafts[i]] = 0.0;
      accepted = verdict.accepted;
      tokens.push_back(params.logprobs >= 0 ? Score(row, verdict.token, params.logprobs) : Sampled{verdict.token});
    } else {
      tokens.push_back(Sample(row, params, key, so_far, counts));
    }
    const int32_t token = tokens.back().token;
    if (counts != nullptr) counts->Add(token);
    if (!accepted || FinishAfter(params, token, so_far + 1) != FinishReason::kNone) break;
  }
  return tokens;
}

}  // namespace sluice::engine
