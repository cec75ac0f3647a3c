// What sampling keeps of one choice from token to token. Belongs to whoever executes steps: the thread that plans fills
// it in before the first step that names it and never looks again (except at `params`, which stay).
//
// Rebuildable from the tokens alone, so that a replay, a preemption and a hand-over change nothing.
#pragma once

#include <cstdint>
#include <span>

#include "engine/sampling_params.h"
#include "engine/token_counts.h"

namespace sluice::engine {

struct SampleState {
  SamplingParams params;
  int choice = 0;
  int position = 0;        // index of the next token in prompt + answer
  int generated = 0;       // tokens of the answer so far
  int32_t last_token = 0;  // at position - 1
  TokenCounts counts;      // only where params.penalizes()

  SampleState(SamplingParams sampling, int choice_index, std::span<const int32_t> tokens, int num_prompt_tokens)
      : params(std::move(sampling)),
        choice(choice_index),
        position(int(tokens.size())),
        generated(int(tokens.size()) - num_prompt_tokens),
        last_token(tokens.back()) {
    if (params.penalizes()) counts.CatchUp(tokens, num_prompt_tokens);
  }

  // A token from elsewhere follows.
  void Append(int32_t token) {
    if (params.penalizes()) counts.Add(token);
    Advance(1, token);
  }

  // `count` tokens follow, the last of which is `last`; `counts` has them already.
  void Advance(int count, int32_t last) {
    last_token = last;
    position += count;
    generated += count;
  }
};

}  // namespace sluice::engine
