// Which rank sends what to which rank when the two sides keep their KV in other shapes. Pure.
//
// A layer group's cache is a grid of layers x heads; each rank of an instance holds a rectangle of it (its shard).
// Latent (MLA) groups and per-sequence states are grids too: a latent vector is one head that every rank holds, a state
// is cut by heads as K and V are. The plan is the same for every block of a sequence and for its state.
//
// Promise: every cell that a receiving rank holds comes to it exactly once, from a rank that holds it. Where several
// sending ranks hold it (replicated KV heads, latent vectors), the ones that send least so far are taken, so that
// replicas share the work; ties go to the lowest rank. So both sides find the same plan without asking each other.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"

namespace sluice::kvtransfer {

// Half open, of the whole model. Empty: the rank holds nothing of the group.
struct KvShard {
  int layer_begin = 0, layer_end = 0;
  int head_begin = 0, head_end = 0;

  int64_t cells() const { return int64_t(layer_end - layer_begin) * (head_end - head_begin); }
  bool operator==(const KvShard&) const = default;
};

// Of one layer group: what each rank of an instance holds, by rank.
using KvShards = std::vector<KvShard>;

struct ReshardPart {
  int from_rank = 0;
  int to_rank = 0;
  KvShard cells;

  bool operator==(const ReshardPart&) const = default;
};

// In the order of to_rank, then of layers and heads. INVALID_ARGUMENT names the first layer and head that a receiving
// rank holds and no sending rank does.
absl::StatusOr<std::vector<ReshardPart>> PlanReshard(const KvShards& from, const KvShards& to);

// Those of one pair of ranks.
std::vector<KvShard> PartsBetween(const std::vector<ReshardPart>& plan, int from_rank, int to_rank);

}  // namespace sluice::kvtransfer
