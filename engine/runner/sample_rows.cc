#include "engine/runner/sample_rows.h"

namespace sluice::engine {
namespace {

Sampled Draw(std::span<float> logits, SampleState& state) {
  const SampleKey key{state.params.seed, state.choice, state.position};
  Sampled sampled = Sample(logits, state.params, key, state.generated, &state.counts);
  state.Append(sampled.token);
  return sampled;
}

}  // namespace

SampleResult SampleRows(const SampleTask& task, std::span<float> logits, size_t vocab) {
  SampleResult result;
  size_t row = 0;
  const auto next_row = [&] { return logits.subspan(row++ * vocab, vocab); };
  for (const int32_t target : task.targets) result.scored.push_back(Score(next_row(), target, task.target_logprobs));
  if (!task.samples) return result;

  const std::span<float> first = next_row();
  for (size_t i = 1; i < task.states.size(); ++i) result.siblings.push_back(Draw(first, *task.states[i]));
  SampleState& state = *task.states[0];
  result.tokens.push_back(Draw(first, state));
  for (const int32_t draft : task.drafts) {
    if (result.tokens.back().token != draft) break;
    result.tokens.push_back(Draw(next_row(), state));
  }
  return result;
}

}  // namespace sluice::engine
