#include "router/policy.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace sluice::router {
namespace {

// Of the backlog, a step's tokens run now; a prefill worker may have one and a half steps more.
bool HasCredit(const WorkerLoad& load, const Demand& demand) {
  const int64_t step = load.max_step_tokens();
  const int64_t backlog = load.prompt_backlog();
  if (step <= 0 || backlog < step) return true;
  return load.role() == pb::ROLE_PREFILL && backlog - step + demand.prompt_tokens <= 3 * step / 2;
}

bool HasRoom(const WorkerLoad& load, const Demand& demand) {
  if (load.held_back() || demand.Blocks(load.block_size()) > load.blocks_free()) return false;
  if (load.role() == pb::ROLE_PREFILL) return HasCredit(load, demand);
  if (load.max_running() > 0 && load.choices() + demand.choices > load.max_running()) return false;
  return load.role() == pb::ROLE_DECODE || HasCredit(load, demand);
}

bool RunsAll(const WorkerLoad& load, const Demand& demand) {
  return load.max_running() <= 0 || demand.choices <= load.max_running();
}

// Could it ever hold that, all by itself?
bool Fits(const Candidate& candidate, const Demand& demand) {
  const WorkerLoad& load = *candidate.load;
  return !candidate.refused_ever && RunsAll(load, demand) &&
         int64_t(demand.prompt_tokens) + demand.answer_tokens <= TokenCapacity(load) &&
         demand.Blocks(load.block_size()) <= load.blocks_total();
}

bool CanTake(const Candidate& candidate, const Demand& demand) {
  return candidate.active && Fits(candidate, demand) && HasRoom(*candidate.load, demand);
}

int64_t OwnRows(const WorkerLoad& load, const Demand& demand) {
  return demand.AllAnswerTokens() * (load.sequences() + demand.choices);
}

int64_t Cost(const WorkerLoad& load, const Demand& demand) {
  switch (load.role()) {
    case pb::ROLE_PREFILL:
      return load.prompt_backlog() + demand.prompt_tokens;
    case pb::ROLE_DECODE:
      return load.answer_tokens() + OwnRows(load, demand);
    default:
      return load.prompt_backlog() + demand.prompt_tokens + load.answer_tokens() + OwnRows(load, demand);
  }
}

std::string Explain(const Candidate& candidate, const Demand& demand) {
  const WorkerLoad& load = *candidate.load;
  const std::string backlog = absl::StrFormat("backlog %d + ", load.prompt_backlog());
  const std::string answers = absl::StrFormat("answers %d + ", load.answer_tokens());
  const int64_t cost = Cost(load, demand);
  const int64_t own = cost - load.prompt_backlog() - (load.role() == pb::ROLE_PREFILL ? 0 : load.answer_tokens());
  return absl::StrFormat("[%s: cost %d = %s%sown %d; blocks %d of %d free, needs %d; %d requests%s%s]", candidate.name,
                         cost, load.role() == pb::ROLE_DECODE ? "" : backlog,
                         load.role() == pb::ROLE_PREFILL ? "" : answers, own, load.blocks_free(), load.blocks_total(),
                         demand.Blocks(load.block_size()), load.attempts(), candidate.active ? "" : "; not active",
                         HasRoom(load, demand) ? "" : "; no room");
}

// The cheapest so far.
class Choice {
 public:
  using Cost = std::tuple<int, int64_t, int64_t>;  // shunned workers, tokens, blocks in use

  void Offer(uint64_t prefill, uint64_t decode, const Cost& cost) {
    if (!winners_.empty() && cost > best_) return;
    if (winners_.empty() || cost < best_) winners_.clear();
    best_ = cost;
    winners_.emplace_back(prefill, decode);
  }
  bool empty() const { return winners_.empty(); }
  std::pair<uint64_t, uint64_t> Draw(std::mt19937_64& rng) const { return winners_[rng() % winners_.size()]; }

 private:
  Cost best_;
  std::vector<std::pair<uint64_t, uint64_t>> winners_;
};

Choice Cheapest(const Pools& pools, const Demand& demand) {
  Choice choice;
  for (const Candidate& both : pools.both) {
    if (CanTake(both, demand)) choice.Offer(0, both.incarnation, {both.shunned, Cost(*both.load, demand), 0});
  }
  const Demand at_prefill = AtPrefill(demand);
  for (const Candidate& p : pools.prefill) {
    if (!CanTake(p, at_prefill)) continue;
    const int64_t cost = Cost(*p.load, at_prefill);
    if (demand.answer_tokens == 1) {
      choice.Offer(p.incarnation, 0, {p.shunned, cost, 0});
      continue;
    }
    for (const Candidate& d : pools.decode) {
      if (!CanTake(d, demand) || pools.pair(p.incarnation, d.incarnation) != PairState::kUp) continue;
      choice.Offer(
          p.incarnation, d.incarnation,
          {p.shunned + d.shunned, cost + Cost(*d.load, demand), d.load->blocks_total() - d.load->blocks_free()});
    }
  }
  return choice;
}

bool AnyFits(const std::vector<Candidate>& candidates, const Demand& demand) {
  return std::any_of(candidates.begin(), candidates.end(), [&](const Candidate& c) { return Fits(c, demand); });
}

bool CouldPair(const Pools& pools, const Candidate& p, const Demand& demand) {
  return std::any_of(pools.decode.begin(), pools.decode.end(), [&](const Candidate& d) {
    return Fits(d, demand) && pools.pair(p.incarnation, d.incarnation) != PairState::kRefused;
  });
}

bool FitsSomewhere(const Pools& pools, const Demand& demand) {
  if (AnyFits(pools.both, demand)) return true;
  return std::any_of(pools.prefill.begin(), pools.prefill.end(), [&](const Candidate& p) {
    return Fits(p, AtPrefill(demand)) && (demand.answer_tokens == 1 || CouldPair(pools, p, demand));
  });
}

int64_t Largest(const std::vector<Candidate>& candidates) {
  int64_t largest = 0;
  for (const Candidate& candidate : candidates) largest = std::max(largest, TokenCapacity(*candidate.load));
  return largest;
}

// By their number alone, however short they are.
bool TooManyChoices(const Pools& pools, const Demand& demand) {
  const auto runs = [&](const Candidate& c) { return RunsAll(*c.load, demand); };
  return std::none_of(pools.both.begin(), pools.both.end(), runs) &&
         (std::none_of(pools.prefill.begin(), pools.prefill.end(), runs) ||
          (demand.answer_tokens > 1 && std::none_of(pools.decode.begin(), pools.decode.end(), runs)));
}

std::string WhyNever(const Pools& pools, const Demand& demand) {
  if (TooManyChoices(pools, demand)) {
    return absl::StrFormat(
        "sampling.n: %d answers are more than any worker runs at once; ask for less, or start a worker with a larger "
        "--max-seqs",
        demand.choices);
  }
  if (pools.both.empty() && !AnyFits(pools.prefill, AtPrefill(demand))) {
    return absl::StrFormat(
        "prompt: its %d tokens are more than any prefill worker can hold (%d tokens); ask for less, or start a prefill "
        "worker with more KV memory",
        demand.prompt_tokens, Largest(pools.prefill));
  }
  Demand one = demand;
  one.choices = 1;
  if (demand.choices > 1 && FitsSomewhere(pools, one)) {
    return absl::StrFormat(
        "sampling.n: prompt (%d tokens) + %d answers of max_tokens (%d) need more KV blocks than any worker has; ask "
        "for less, or start a worker with more KV memory",
        demand.prompt_tokens, demand.choices, demand.answer_tokens);
  }
  return absl::StrFormat(
      "sampling.max_tokens: prompt (%d tokens) + max_tokens (%d) is more than any worker can hold (%d tokens); ask for "
      "less, or start a worker with more KV memory",
      demand.prompt_tokens, demand.answer_tokens, std::max(Largest(pools.both), Largest(pools.decode)));
}

std::string ExplainAll(const Pools& pools, const Demand& demand) {
  std::string text;
  for (const Candidate& both : pools.both) text += Explain(both, demand);
  for (const Candidate& p : pools.prefill) text += Explain(p, AtPrefill(demand));
  for (const Candidate& d : pools.decode) text += Explain(d, demand);
  for (const Candidate& p : pools.prefill) {
    for (const Candidate& d : pools.decode) {
      if (pools.pair(p.incarnation, d.incarnation) == PairState::kUp) continue;
      absl::StrAppend(&text, "[", p.name, " with ", d.name, ": the pair is not up]");
    }
  }
  return text;
}

}  // namespace

Demand AtPrefill(const Demand& demand) {
  return {demand.prompt_tokens, demand.answer_tokens == 1 ? 1 : 0, demand.choices};
}

int64_t TokenCapacity(const WorkerLoad& load) {
  const int64_t pool = load.blocks_total() * load.block_size();
  return load.context_length() > 0 ? std::min<int64_t>(pool, load.context_length()) : pool;
}

std::string WhoIsMissing(const Pools& pools, const Demand& demand) {
  if (!pools.both.empty()) return "";
  if (pools.prefill.empty() && pools.decode.empty()) {
    return "no worker is alive; start one, or try again when one has announced itself";
  }
  if (pools.prefill.empty()) {
    return "no prefill worker is alive; start one, or try again when one has announced itself";
  }
  if (demand.answer_tokens == 1) return "";
  if (pools.decode.empty()) return "no decode worker is alive; start one, or try again when one has announced itself";
  for (const Candidate& p : pools.prefill) {
    for (const Candidate& d : pools.decode) {
      if (pools.pair(p.incarnation, d.incarnation) != PairState::kRefused) return "";
    }
  }
  return "no prefill worker fits any decode worker; the router's log says why, and workers of one build and model fit";
}

Placement Place(const Pools& pools, const Demand& demand, bool explain, std::mt19937_64& rng) {
  Placement placement;
  if (explain) placement.explanation = ExplainAll(pools, demand);
  if (std::string missing = WhoIsMissing(pools, demand); !missing.empty()) {
    placement.explanation = std::move(missing);
  } else if (const Choice choice = Cheapest(pools, demand); !choice.empty()) {
    placement.kind = Placement::Kind::kPlace;
    std::tie(placement.prefill, placement.decode) = choice.Draw(rng);
  } else if (FitsSomewhere(pools, demand)) {
    placement.kind = Placement::Kind::kWait;
  } else {
    placement.kind = Placement::Kind::kNever;
    placement.explanation = WhyNever(pools, demand);
  }
  return placement;
}

}  // namespace sluice::router
