#include "engine/runner/sample_rows.h"

#include "engine/speculation/rejection_rule.h"
#include "engine/speculation/verify_drafts.h"

namespace sluice::engine {
namespace {

// logits is [1 + drafts][vocab].
std::vector<Sampled> Draw(std::span<float> logits, std::span<const int32_t> drafts, DraftRule rule, SampleState& s) {
  const SampleKey key{s.params.seed, s.choice, s.position};
  std::vector<Sampled> tokens =
      rule == DraftRule::kRejection && !drafts.empty()
          ? VerifyByRejection(logits, drafts, {}, s.params, key, s.generated, &s.counts)
          : VerifyDrafts(logits, drafts, s.params, key, s.generated, &s.counts);
  s.Advance(int(tokens.size()), tokens.back().token);
  return tokens;
}

}  // namespace

SampleResult SampleRows(const SampleTask& task, std::span<float> logits, size_t vocab, DraftRule rule) {
  SampleResult result;
  for (size_t i = 0; i < task.targets.size(); ++i) {
    result.scored.push_back(Score(logits.subspan(i * vocab, vocab), task.targets[i], task.target_logprobs));
  }
  if (!task.samples) return result;
  const std::span<float> rows = logits.subspan(task.targets.size() * vocab);
  for (size_t i = 1; i < task.states.size(); ++i) {
    result.siblings.push_back(Draw(rows.first(vocab), {}, rule, *task.states[i])[0]);
  }
  result.tokens = Draw(rows, task.drafts, rule, *task.states[0]);
  return result;
}

}  // namespace sluice::engine
