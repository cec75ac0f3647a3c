// From the rows of logits of one chunk to its tokens: scores of prompt tokens, the new token, the drafts that it proves
// right, and the first tokens of choices that fork off.
//
// How drafts are judged decides nothing but speed under kEquality (speculation/verify_drafts.h: the tokens are those of
// an answer without drafts); under kRejection (speculation/rejection_rule.h) they have the same distribution.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/runner/step.h"

namespace sluice::engine {

enum class DraftRule : uint8_t { kEquality, kRejection };

// Rows of logits of a task: targets + 1 + drafts, or its targets where nothing samples.
inline size_t NumLogits(const SampleTask& task) {
  return task.targets.size() + (task.samples ? 1 + task.drafts.size() : 0);
}

// logits is [NumLogits][vocab], used as scratch; maxima those of its blocks, or nothing (sampler.h). Advances the
// task's states.
SampleResult SampleRows(const SampleTask& task, std::span<float> logits, size_t vocab,
                        DraftRule rule = DraftRule::kEquality, std::span<const float> maxima = {});

}  // namespace sluice::engine
