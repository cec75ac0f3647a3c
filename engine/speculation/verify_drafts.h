// Acceptance by equality: a draft holds iff it is the token that is drawn at its position anyway.
//
// Promise: the tokens are those of steps without drafts, whatever the drafts are: each is Sample's of its own row, with
// its own position's key, and with the counts and the number of tokens that the row would have had alone. Drafts only
// decide how many tokens a step yields.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "engine/sampler.h"

namespace sluice::engine {

// logits is [drafts + 1][vocab]: row i follows the drafts [0, i). Used as scratch. maxima: of its blocks, or nothing.
// `first` is the key of row 0, `generated` the tokens of the answer before it, and so is *counts, to which every
// returned token is added; it may be null unless params.penalizes(). Returns the accepted drafts and the token that
// follows them, at most drafts + 1 and at least one; nothing after a token that ends the answer (FinishAfter). All but
// the last are equal to their drafts.
std::vector<Sampled> VerifyDrafts(std::span<float> logits, std::span<const int32_t> drafts,
                                  const SamplingParams& params, const SampleKey& first, int generated,
                                  TokenCounts* counts, std::span<const float> maxima = {});

// The same, where draw(i) gives Sample's token of row i.
std::vector<Sampled> HoldingDrafts(std::span<const int32_t> drafts, const SamplingParams& params, int generated,
                                   TokenCounts* counts, const std::function<Sampled(size_t)>& draw);

// How many of `drafts` the tokens hold: what a drafter wants to hear.
int AcceptedDrafts(std::span<const Sampled> tokens, std::span<const int32_t> drafts);

}  // namespace sluice::engine
