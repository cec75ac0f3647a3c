// From the rows of logits of one chunk to its tokens: scores of prompt tokens, the new token, the drafts that it proves
// right, and the first tokens of choices that fork off.
//
// A draft is accepted iff it is the token that its position's key draws from the target's distribution: so the tokens are
// those of an answer without drafts, and rows after the first wrong draft mean nothing.
#pragma once

#include <cstddef>
#include <span>

#include "engine/runner/step.h"

namespace sluice::engine {

// logits is [targets + 1 + drafts][vocab] ([targets][vocab] where nothing samples), used as scratch. Advances the task's
// states.
SampleResult SampleRows(const SampleTask& task, std::span<float> logits, size_t vocab);

}  // namespace sluice::engine
