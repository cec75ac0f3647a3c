// One choice of one request in the engine: its tokens, and how many of them are computed.
//
// The scheduler hands out ranges until computed == tokens.size(); chunked prefill, decode and recompute are the same
// thing. A sequence that computed its last token samples the next one, which is appended to `tokens`.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/sampling_params.h"

namespace sluice::engine {

struct Sequence {
  uint64_t id = 0;  // the engine's name of the request
  int choice = 0;
  std::vector<int32_t> tokens;  // prompt, then generated
  int num_prompt_tokens = 0;    // tokens[0, n) is the user's prompt; a replay starts with more tokens than that
  int computed = 0;             // tokens[0, computed) have their K and V in the blocks
  std::vector<int32_t> blocks;  // block table: block i holds the tokens [i * block_size, (i + 1) * block_size)
  SamplingParams sampling;
  int priority = 0;      // lower runs first
  uint64_t arrival = 0;  // order of arrival in this engine

  bool park_after_first = false;  // leaves the schedule with its first new token and keeps the blocks
  bool awaiting_kv = false;       // its KV comes from elsewhere: not scheduled before that

  int remaining() const { return int(tokens.size()) - computed; }
  int generated() const { return int(tokens.size()) - num_prompt_tokens; }
};

}  // namespace sluice::engine
