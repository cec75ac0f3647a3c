#include "engine/speculation/verify_drafts.h"

#include <glog/logging.h>

#include <utility>

namespace sluice::engine {

std::vector<Sampled> HoldingDrafts(std::span<const int32_t> drafts, const SamplingParams& params, int generated,
                                   TokenCounts* counts, const std::function<Sampled(size_t)>& draw) {
  std::vector<Sampled> tokens;
  for (size_t i = 0; i <= drafts.size(); ++i) {
    tokens.push_back(draw(i));
    const int32_t token = tokens.back().token;
    if (counts != nullptr) counts->Add(token);
    if (FinishAfter(params, token, generated + int(i) + 1) != FinishReason::kNone) break;
    if (i < drafts.size() && token != drafts[i]) break;
  }
  return tokens;
}

std::vector<Sampled> VerifyDrafts(std::span<float> logits, std::span<const int32_t> drafts,
                                  const SamplingParams& params, const SampleKey& first, int generated,
                                  TokenCounts* counts, std::span<const float> maxima) {
  CHECK_EQ(logits.size() % (drafts.size() + 1), 0u);
  const size_t vocab = logits.size() / (drafts.size() + 1);
  const size_t blocks = maxima.size() / (drafts.size() + 1);
  return HoldingDrafts(drafts, params, generated, counts, [&](size_t i) {
    const SampleKey key{first.seed, first.choice, first.position + int(i)};
    return Sample(logits.subspan(i * vocab, vocab), params, key, generated + int(i), counts,
                  maxima.subspan(i * blocks, blocks));
  });
}

int AcceptedDrafts(std::span<const Sampled> tokens, std::span<const int32_t> drafts) {
  size_t accepted = 0;
  while (accepted < tokens.size() && accepted < drafts.size() && tokens[accepted].token == drafts[accepted]) ++accepted;
  return int(accepted);
}

}  // namespace sluice::engine
