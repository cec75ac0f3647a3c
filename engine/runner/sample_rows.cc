#include "engine/runner/sample_rows.h"

#include "engine/speculation/rejection_rule.h"
#include "engine/speculation/verify_drafts.h"

namespace sluice::engine {
namespace {

// logits is [1 + drafts][vocab], maxima those of its blocks, or nothing.
std::vector<Sampled> Draw(std::span<float> logits, std::span<const float> maxima, std::span<const int32_t> drafts,
                          DraftRule rule, SampleState& s) {
  const SampleKey key{s.params.seed, s.choice, s.position};
  std::vector<Sampled> tokens = rule == DraftRule::kRejection && !drafts.empty()
                                    ? VerifyByRejection(logits, drafts, {}, s.params, key, s.generated, &s.counts)
                                    : VerifyDrafts(logits, drafts, s.params, key, s.generated, &s.counts, maxima);
  s.Advance(int(tokens.size()), tokens.back().token);
  return tokens;
}

}  // namespace

SampleResult SampleRows(const SampleTask& task, std::span<float> logits, size_t vocab, DraftRule rule,
                        std::span<const float> maxima) {
  SampleResult result;
  for (size_t i = 0; i < task.targets.size(); ++i) {
    result.scored.push_back(Score(logits.subspan(i * vocab, vocab), task.targets[i], task.target_logprobs));
  }
  if (!task.samples) return result;
  const std::span<float> rows = logits.subspan(task.targets.size() * vocab);
  const size_t blocks = maxima.empty() ? 0 : size_t(kernels::NumLogitBlocks(int64_t(vocab)));
  const std::span<const float> row_maxima = maxima.subspan(task.targets.size() * blocks);
  for (size_t i = 1; i < task.states.size(); ++i) {
    result.siblings.push_back(Draw(rows.first(vocab), row_maxima.first(blocks), {}, rule, *task.states[i])[0]);
  }
  result.tokens = Draw(rows, row_maxima, task.drafts, rule, *task.states[0]);
  return result;
}

}  // namespace sluice::engine
