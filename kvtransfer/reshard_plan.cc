#include "kvtransfer/reshard_plan.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_format.h"

namespace sluice::kvtransfer {
namespace {

bool Holds(const KvShard& shard, const KvShard& cells) {
  return shard.layer_begin <= cells.layer_begin && cells.layer_end <= shard.layer_end &&
         shard.head_begin <= cells.head_begin && cells.head_end <= shard.head_end;
}

// Borders of `begin..end` at which the set of holders may change.
std::vector<int> Borders(int begin, int end, const KvShards& from, int KvShard::*low, int KvShard::*high) {
  std::set<int> borders = {begin, end};
  for (const KvShard& shard : from) {
    for (const int border : {shard.*low, shard.*high}) {
      if (begin < border && border < end) borders.insert(border);
    }
  }
  return {borders.begin(), borders.end()};
}

// The holder that has the least to send, or -1.
int Choose(const KvShards& from, const std::vector<int64_t>& load, const KvShard& cells) {
  int chosen = -1;
  for (int rank = 0; rank < int(from.size()); ++rank) {
    if (!Holds(from[size_t(rank)], cells)) continue;
    if (chosen < 0 || load[size_t(rank)] < load[size_t(chosen)]) chosen = rank;
  }
  return chosen;
}

// Joins neighbours of one row of the grid, then equal rows.
void Append(std::vector<ReshardPart>& plan, const ReshardPart& part) {
  if (!plan.empty()) {
    ReshardPart& last = plan.back();
    const bool same = last.from_rank == part.from_rank && last.to_rank == part.to_rank;
    if (same && last.cells.layer_begin == part.cells.layer_begin && last.cells.layer_end == part.cells.layer_end &&
        last.cells.head_end == part.cells.head_begin) {
      last.cells.head_end = part.cells.head_end;
      return;
    }
    if (same && last.cells.head_begin == part.cells.head_begin && last.cells.head_end == part.cells.head_end &&
        last.cells.layer_end == part.cells.layer_begin) {
      last.cells.layer_end = part.cells.layer_end;
      return;
    }
  }
  plan.push_back(part);
}

}  // namespace

absl::StatusOr<std::vector<ReshardPart>> PlanReshard(const KvShards& from, const KvShards& to) {
  std::vector<ReshardPart> plan;
  std::vector<int64_t> load(from.size(), 0);  // cells to send
  for (int rank = 0; rank < int(to.size()); ++rank) {
    const KvShard& want = to[size_t(rank)];
    if (want.cells() <= 0) continue;
    const std::vector<int> layers =
        Borders(want.layer_begin, want.layer_end, from, &KvShard::layer_begin, &KvShard::layer_end);
    const std::vector<int> heads =
        Borders(want.head_begin, want.head_end, from, &KvShard::head_begin, &KvShard::head_end);
    for (size_t l = 0; l + 1 < layers.size(); ++l) {
      for (size_t h = 0; h + 1 < heads.size(); ++h) {
        const KvShard cells{layers[l], layers[l + 1], heads[h], heads[h + 1]};
        const int chosen = Choose(from, load, cells);
        if (chosen < 0) {
          return absl::InvalidArgumentError(
              absl::StrFormat("no sending rank holds head %d of layer %d, which receiving rank %d needs",
                              cells.head_begin, cells.layer_begin, rank));
        }
        load[size_t(chosen)] += cells.cells();
        Append(plan, {chosen, rank, cells});
      }
    }
  }
  return plan;
}

std::vector<KvShard> PartsBetween(const std::vector<ReshardPart>& plan, int from_rank, int to_rank) {
  std::vector<KvShard> parts;
  for (const ReshardPart& part : plan) {
    if (part.from_rank == from_rank && part.to_rank == to_rank) parts.push_back(part.cells);
  }
  return parts;
}

}  // namespace sluice::kvtransfer
