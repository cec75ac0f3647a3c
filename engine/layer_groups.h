// What the KV memory of a model's layers is asked to hold: layers of one kind form a group, with block lists of its own.
// Pure description and arithmetic, for pools, the prefix cache and transfers.
//
//   full     K and V of every token
//   window   K and V of the last `window` tokens, the newest included
//   latent   one compressed vector per token (MLA); blocks as of full attention, but smaller
//   state    no blocks: a state per sequence that each token changes (linear attention); a prefix can be taken up only
//            where a copy of the state was kept
//
// Limits: engines compute full groups only; CheckSupported refuses the others by name.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "engine/files/model_config.h"

namespace sluice::engine {

enum class LayerKind : uint8_t { kFull, kWindow, kLatent, kState };

struct LayerGroup {
  LayerKind kind = LayerKind::kFull;
  std::vector<int> layers;  // of the model, ascending
  int window = 0;           // tokens, of kWindow

  bool operator==(const LayerGroup&) const = default;
};

// Blocks [begin, end) of a sequence.
struct BlockRange {
  int begin = 0, end = 0;
  bool operator==(const BlockRange&) const = default;
};

// Which blocks of a sequence of `tokens` tokens the group must hold to compute the next one, and so what is to be sent of
// it: those before `begin` may be given back.
BlockRange HeldBlocks(const LayerGroup& group, int tokens, int block_size);

// Whether a sequence can go on after a prefix of `tokens` tokens, whole blocks of which `stored` are all that is left:
// blocks [stored.begin, stored.end). `state_kept`: a copy of the state after exactly that prefix exists.
bool CanResume(const LayerGroup& group, int tokens, int block_size, BlockRange stored, bool state_kept);

// Of contexts up to `max_context` tokens: a window that no context outgrows is full attention.
std::vector<LayerGroup> LayerGroupsOf(const ModelConfig& config, int max_context);

// UNIMPLEMENTED, naming the kind and the first layer, for groups that no engine computes yet.
absl::Status CheckSupported(const std::vector<LayerGroup>& groups);

}  // namespace sluice::engine
