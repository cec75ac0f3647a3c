// The classic speculative rule (Leviathan et al. 2023, Chen et al. 2023), an option beside acceptance by equality: a
// draft that the drafter drew from q is accepted with probability min(1, p/q), and else replaced by a token of the
// residual max(p - q, 0), normalised. The token is distributed as the target p exactly, and drafts are accepted more
// often; but which token it is depends on the drafts, so the tokens of a seed do not survive another drafter or none.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/sampler.h"

namespace sluice::engine {

// Distributions are [vocab] and sum to 1.

// The probability that a draft of q is accepted: sum of min(p, q).
double AcceptanceProbability(std::span<const double> p, std::span<const double> q);

// What replaces a refused draft. Where p never exceeds q, nothing is ever refused: p.
std::vector<double> Residual(std::span<const double> p, std::span<const double> q);

struct Verdict {
  bool accepted = false;
  int32_t token = 0;  // the draft, or what replaces it
};

// REQUIRES: draft was drawn from q, with noise that is independent of `key`'s purposes kAccept and kResidual.
Verdict JudgeDraft(std::span<const double> p, std::span<const double> q, int32_t draft, const SampleKey& key);

// As VerifyDrafts, by this rule. q is [drafts][vocab]; empty for a drafter that draws nothing (prompt lookup): all of
// its probability is on the draft.
std::vector<Sampled> VerifyByRejection(std::span<float> logits, std::span<const int32_t> drafts,
                                       std::span<const double> q, const SamplingParams& params, const SampleKey& first,
                                       int generated, TokenCounts* counts);

}  // namespace sluice::engine
