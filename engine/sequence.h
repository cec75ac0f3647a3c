// One choice of one request in the engine: its tokens, and how many of them are computed.
//
// The scheduler hands out ranges until all tokens are; chunked prefill, decode, verification of drafts and recompute
// are the same thing. A range that ends at the last token yields the next one.
//
// Steps overlap: a step may be planned while the one before is under way. So there are three marks in a sequence,
//   computed <= scheduled <= tokens.size() + pending
// and a new token is known by number (`pending`) before it is known by value. Belongs to the thread that plans and
// commits; what the execution of a step needs of it is in SampleState, which it alone touches.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/block_hash.h"
#include "engine/drafter.h"
#include "engine/sample_state.h"
#include "engine/sampler.h"
#include "engine/sampling_params.h"

namespace sluice::engine {

struct Sequence {
  uint64_t id = 0;  // the engine's name of the request
  int choice = 0;
  std::vector<int32_t> tokens;  // prompt, then generated
  int num_prompt_tokens = 0;    // tokens[0, n) is the user's prompt; a replay starts with more tokens than that

  int computed = 0;         // tokens[0, computed) have their K and V in the blocks
  int scheduled = 0;        // tokens[0, scheduled) are computed or in a step under way
  int pending = 0;          // tokens that steps under way will bring: 0 or 1
  bool verifying = false;   // a step under way checks drafts: it brings at least the pending one
  uint32_t recomputes = 0;  // how often the blocks were taken away; a step that began before computes in vain

  int reserve_blocks = 0;        // blocks that its admission promised it
  std::vector<int32_t> blocks;   // block table: block i holds the tokens [i * block_size, (i + 1) * block_size)
  BlockHash root;                // of the names below
  std::vector<BlockHash> names;  // of the full blocks of the known tokens, as far as they were needed
  int stored_blocks = 0;         // blocks[0, n) have been offered to the prefix cache
  bool reads_prefix_cache = true;
  int hit_tokens = 0;  // of the first admission: found in the prefix cache

  std::shared_ptr<SampleState> sample;
  std::vector<std::shared_ptr<SampleState>> siblings;  // choices that fork off with the first new token
  std::unique_ptr<Drafter> drafter;                    // null: no drafts
  int prompt_logprobs = -1;        // alternatives per prompt token; -1: not wanted
  std::vector<Sampled> scored;     // of tokens[1, ...): the prompt's log-probabilities so far

  int priority = 0;            // lower runs first
  uint64_t arrival = 0;        // order of arrival in this engine
  uint64_t waiting_since = 0;  // the scheduler's plan
  bool starved = false;        // waited too long: runs before all that did not
  uint64_t last_planned = 0;   // the last plan that computes tokens of it

  bool park_after_first = false;  // leaves the schedule with its first new token and keeps the blocks
  bool parked = false;
  bool awaiting_kv = false;  // its KV comes from elsewhere: not scheduled before that
  bool removed = false;      // no longer in the table; a step under way may still name it

  const SamplingParams& sampling() const { return sample->params; }
  int total() const { return int(tokens.size()) + pending; }  // tokens, known or not yet
  int remaining() const { return total() - scheduled; }       // to be handed out
  int generated() const { return int(tokens.size()) - num_prompt_tokens; }
  // Nothing may be planned: the answer is full with the tokens under way, or what follows depends on them.
  bool complete() const {
    return verifying || parked || (park_after_first && pending > 0) ||
           total() - num_prompt_tokens >= sample->params.max_tokens;
  }
};

}  // namespace sluice::engine
