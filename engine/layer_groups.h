// Layer groups: what the layers of a model keep of a sequence. The layers of a group keep the same, so they share block
// tables, a pool and a place in the transfer; a model has one or more groups. Pure values and functions of them.
//
// Only a single group of full attention is served (CheckServed); what the other kinds hold is stated here because block
// lists and pieces are by group on the wire (proto/worker.proto, LayerGroup).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "engine/files/model_config.h"
#include "kernels/kv_layout.h"

namespace sluice::engine {

enum class KvKind : uint8_t {
  kFull,    // every token keeps K and V
  kWindow,  // the last `window` tokens do
  kLatent,  // every token keeps one latent vector
  kState,   // nothing by token: a state of fixed size for the whole sequence
};
const char* Name(KvKind kind);

struct LayerGroup {
  KvKind kind = KvKind::kFull;
  std::vector<int> layers;  // of the model, ascending
  int window = 0;           // kWindow: a row sees that many tokens, itself included
  int64_t block_bytes = 0;  // of all its layers; kState: of one sequence's state

  bool operator==(const LayerGroup&) const = default;
};

// Blocks [begin, end) of a sequence, by their place in it.
struct BlockRange {
  int begin = 0;
  int end = 0;

  int size() const { return end - begin; }
  bool operator==(const BlockRange&) const = default;
};

// What a group must hold of `tokens` computed tokens so that the next one can be computed: also what a transfer of that
// sequence must send. Empty for kState, whose state goes as a whole.
BlockRange NeededBlocks(const LayerGroup& group, int64_t tokens, int block_size);

// The bytes of all that.
int64_t NeededBytes(const std::vector<LayerGroup>& groups, int64_t tokens, int block_size);

// The groups of a model whose KV lies in pools of this layout.
std::vector<LayerGroup> LayerGroupsOf(const ModelConfig& config, const kernels::KvLayout& layout);

// UNIMPLEMENTED, naming the group, for models that this engine cannot serve yet.
absl::Status CheckServed(const std::vector<LayerGroup>& groups);

}  // namespace sluice::engine
