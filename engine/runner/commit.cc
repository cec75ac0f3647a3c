#include "engine/runner/commit.h"

#include <glog/logging.h>

#include <algorithm>

namespace sluice::engine {
namespace {

bool Contains(const std::vector<int32_t>& ids, int32_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

// REQUIRES: `token` is the sequence's last. The min_tokens mask kept ending tokens away before their time; the count is
// checked nevertheless, since a mask over the whole vocabulary is void.
FinishReason FinishAfter(const Sequence& s, int32_t token, int max_context) {
  const SamplingParams& p = s.sampling;
  const bool ends = (!p.ignore_eos && Contains(p.eos_ids, token)) || Contains(p.stop_ids, token);
  if (ends && s.generated() > p.min_tokens) return FinishReason::kStop;
  if (s.generated() >= p.max_tokens || int(s.tokens.size()) >= max_context) return FinishReason::kLength;
  return FinishReason::kNone;
}

}  // namespace

std::vector<TokenOutput> Commit(const StepPlan& plan, std::span<float> logits, int vocab, int max_context) {
  std::vector<TokenOutput> outputs;
  size_t row = 0;
  for (const Chunk& c : plan) {
    Sequence& s = *c.sequence;
    CHECK_EQ(s.computed, c.begin);
    s.computed += c.count;
    if (!c.samples) continue;
    CHECK_EQ(s.remaining(), 0);
    CHECK_LE((row + 1) * vocab, logits.size());
    TokenOutput out{s.id, s.choice, s.generated(), {}, FinishReason::kNone};
    const SampleKey key{s.sampling.seed, s.choice, int(s.tokens.size())};
    TokenCounts counts;
    if (s.sampling.penalizes()) counts.CatchUp(s.tokens, s.num_prompt_tokens);
    out.sampled = Sample(logits.subspan(row++ * vocab, vocab), s.sampling, key, s.generated(), &counts);
    s.tokens.push_back(out.sampled.token);
    out.finish = FinishAfter(s, out.sampled.token, max_context);
    outputs.push_back(std::move(out));
  }
  return outputs;
}

}  // namespace sluice::engine
