#include "router/policy.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace sluice::router {
namespace {

bool HasRoom(const WorkerLoad& load, const Demand& demand) {
  if (load.held_back()) return false;
  if (demand.Blocks(load.block_size()) > load.blocks_free()) return false;
  if (load.max_running() > 0 && load.attempts() >= load.max_running()) return false;
  return load.max_step_tokens() <= 0 || load.prompt_backlog() < load.max_step_tokens();
}

int64_t Cost(const WorkerLoad& load, const Demand& demand) {
  return load.prompt_backlog() + load.answer_tokens() + demand.prompt_tokens + demand.answer_tokens;
}

std::string Explain(const Candidate& candidate, const Demand& demand, bool room) {
  const WorkerLoad& load = *candidate.load;
  return absl::StrFormat("[%s: cost %d = backlog %d + answers %d + own %d; blocks %d of %d free, needs %d%s%s]",
                         candidate.name, Cost(load, demand), load.prompt_backlog(), load.answer_tokens(),
                         demand.prompt_tokens + demand.answer_tokens, load.blocks_free(), load.blocks_total(),
                         demand.Blocks(load.block_size()), candidate.active ? "" : "; not active",
                         room ? "" : "; no room");
}

}  // namespace

int64_t TokenCapacity(const WorkerLoad& load) {
  const int64_t pool = load.blocks_total() * load.block_size();
  return load.context_length() > 0 ? std::min<int64_t>(pool, load.context_length()) : pool;
}

Placement Place(const std::vector<Candidate>& candidates, const Demand& demand, bool explain, std::mt19937_64& rng) {
  Placement placement;
  int64_t largest = 0;
  bool fits_somewhere = false;
  int64_t best = std::numeric_limits<int64_t>::max();
  std::vector<uint64_t> winners;
  for (const Candidate& candidate : candidates) {
    const WorkerLoad& load = *candidate.load;
    largest = std::max(largest, TokenCapacity(load));
    const bool fits = !candidate.refused_ever && demand.prompt_tokens + demand.answer_tokens <= TokenCapacity(load);
    fits_somewhere = fits_somewhere || fits;
    const bool room = candidate.active && fits && HasRoom(load, demand);
    if (explain) absl::StrAppend(&placement.explanation, Explain(candidate, demand, room));
    if (!room) continue;
    const int64_t cost = Cost(load, demand);
    if (cost < best) winners.clear();
    if (cost <= best) winners.push_back(candidate.incarnation);
    best = std::min(best, cost);
  }
  if (!winners.empty()) {
    placement.kind = Placement::Kind::kPlace;
    placement.incarnation = winners[rng() % winners.size()];
  } else if (fits_somewhere) {
    placement.kind = Placement::Kind::kWait;
  } else if (!candidates.empty()) {
    placement.kind = Placement::Kind::kNever;
    placement.explanation = absl::StrFormat(
        "prompt (%d tokens) + max_tokens (%d) is more than any worker can hold (%d tokens); ask for less, or start a "
        "worker with more KV memory",
        demand.prompt_tokens, demand.answer_tokens, largest);
  }
  return placement;
}

}  // namespace sluice::router
