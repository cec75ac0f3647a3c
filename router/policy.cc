#include "router/policy.h"

#include <algorithm>
#include <compare>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace sluice::router {
namespace {

// Of the backlog, a step's tokens run now; a prefill worker may have one and a half steps more.
bool HasCredit(const WorkerLoad& load, const Demand& demand, int cached) {
  const int64_t step = load.max_step_tokens();
  const int64_t backlog = load.prompt_backlog();
  if (step <= 0 || backlog < step) return true;
  return load.role() == pb::ROLE_PREFILL && backlog - step + demand.prompt_tokens - cached <= 3 * step / 2;
}

// `whole`: it computes prompt and answer, whatever its role.
bool HasRoom(const WorkerLoad& load, const Demand& demand, int cached, bool whole = false) {
  if (load.held_back() || demand.Blocks(load.block_size()) > load.blocks_free()) return false;
  if (load.role() == pb::ROLE_PREFILL && !whole) return HasCredit(load, demand, cached);
  if (load.max_running() > 0 && load.choices() + demand.choices > load.max_running()) return false;
  return (load.role() == pb::ROLE_DECODE && !whole) || HasCredit(load, demand, cached);
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
  return candidate.active && Fits(candidate, demand) && HasRoom(*candidate.load, demand, candidate.cached_tokens);
}

constexpr int kAnswerHorizon = 256;  // tokens; most answers end before max_tokens

double Credit(const Candidate& c) {
  const double blocks = double(c.load->blocks_total());
  const double backlog = double(c.load->prompt_backlog()) / c.load->block_size();
  return blocks <= 0 ? 0 : c.cached_tokens * blocks / (blocks + backlog);
}

double TtftMs(const Candidate& c, const Demand& demand, bool with_prefixes) {
  const double own = demand.prompt_tokens - (with_prefixes ? Credit(c) : 0);
  return (double(c.load->prompt_backlog()) + own) * c.load->ms_per_prompt_token();
}

double TpotMs(const Candidate& c, const Demand& demand) {
  const WorkerLoad& load = *c.load;
  const double taken = double(load.blocks_total() - load.blocks_free() + demand.Blocks(load.block_size()));
  const double use = load.blocks_total() > 0 ? taken / double(load.blocks_total()) : 1;
  return load.step_ms(load.sequences() + demand.choices) * (1 + std::max(0.0, use - 0.8) * 5);
}

int Horizon(const Demand& demand) {
  return std::min(demand.answer_tokens, kAnswerHorizon);
}

// What is compared, from the most important on: shunned workers, limits that are missed, the policy's cost, blocks in
// use. Costs of P and D add up.
struct Cost {
  int shunned = 0;
  int misses = 0;
  double cost = 0;
  int64_t blocks = 0;
  auto operator<=>(const Cost&) const = default;
  Cost operator+(const Cost& o) const {
    return {shunned + o.shunned, misses + o.misses, cost + o.cost, blocks + o.blocks};
  }
};

int Misses(double predicted, double limit) {
  return limit > 0 && predicted > limit ? 1 : 0;
}

Cost PromptCost(const Candidate& c, const Demand& demand, Policy policy) {
  Cost cost{.shunned = c.shunned};
  switch (policy) {
    case Policy::kSlo:
    case Policy::kLeastLoaded:
      cost.cost = TtftMs(c, demand, policy == Policy::kSlo);
      if (policy == Policy::kSlo) cost.misses = Misses(cost.cost, demand.ttft_limit_ms);
      break;
    case Policy::kPrefix:
      cost.cost = -c.cached_tokens + 1e-9 * double(c.load->prompt_backlog());
      break;
    case Policy::kRoundRobin:
      cost.cost = double(c.load->last_turn());
      break;
  }
  return cost;
}

Cost AnswerCost(const Candidate& c, const Demand& demand, Policy policy) {
  Cost cost{.shunned = c.shunned, .blocks = c.load->blocks_total() - c.load->blocks_free()};
  if (policy == Policy::kRoundRobin) {
    cost.cost = double(c.load->last_turn());
    return cost;
  }
  const double tpot = TpotMs(c, demand);
  cost.cost = Horizon(demand) * tpot;
  // Prefix hits and milliseconds do not add up: D is chosen for itself.
  if (policy == Policy::kPrefix) cost.cost *= 1e-9;
  if (policy == Policy::kSlo) cost.misses = Misses(tpot, demand.tpot_limit_ms);
  return cost;
}

Cost BothCost(const Candidate& c, const Demand& demand, Policy policy) {
  Cost cost = PromptCost(c, demand, policy);
  if (policy == Policy::kRoundRobin) return cost;
  const Cost answer = AnswerCost(c, demand, policy);
  return {cost.shunned, cost.misses + answer.misses, cost.cost + answer.cost, answer.blocks};
}

std::string Explain(const Candidate& c, const Demand& demand, Policy policy) {
  const WorkerLoad& load = *c.load;
  const bool prompts = load.role() != pb::ROLE_DECODE;
  const bool answers = load.role() != pb::ROLE_PREFILL;
  std::string text = absl::StrFormat("[%s:", c.name);
  if (prompts) {
    absl::StrAppendFormat(&text, " ttft %.1f ms = (backlog %d + prompt %d - credit %.0f of %d cached) x %.3f ms;",
                          TtftMs(c, demand, policy == Policy::kSlo), load.prompt_backlog(), demand.prompt_tokens,
                          policy == Policy::kSlo ? Credit(c) : 0.0, c.cached_tokens, load.ms_per_prompt_token());
  }
  if (answers) {
    absl::StrAppendFormat(&text, " tpot %.2f ms with %d sequences;", TpotMs(c, demand),
                          load.sequences() + demand.choices);
  }
  absl::StrAppendFormat(&text, " blocks %d of %d free, needs %d; %d requests%s%s%s]", load.blocks_free(),
                        load.blocks_total(), demand.Blocks(load.block_size()), load.attempts(),
                        c.active ? "" : "; not active", c.shunned ? "; failed it before" : "",
                        HasRoom(load, demand, c.cached_tokens) ? "" : "; no room");
  return text;
}

// A worker that can take the request, or its half.
struct Offer {
  const Candidate* candidate = nullptr;
  Cost cost;
};

// By cost; equal ones in random order.
void Rank(std::vector<Offer>& offers, std::mt19937_64& rng) {
  if (offers.size() < 2) return;
  std::shuffle(offers.begin(), offers.end(), rng);
  std::stable_sort(offers.begin(), offers.end(), [](const Offer& a, const Offer& b) { return a.cost < b.cost; });
}

struct Choice {
  const Candidate* prefill = nullptr;
  const Candidate* decode = nullptr;
  std::optional<Cost> cost;

  void Consider(const Candidate* p, const Candidate* d, const Cost& offered) {
    if (cost.has_value() && !(offered < *cost)) return;
    prefill = p;
    decode = d;
    cost = offered;
  }
};

// The cheapest pair that is up. Costs add up, so what comes later in both ranks is never cheaper.
void ConsiderPairs(const std::vector<Offer>& prefill, const std::vector<Offer>& decode, const Pools& pools,
                   Choice& choice) {
  for (const Offer& p : prefill) {
    for (const Offer& d : decode) {
      const Cost cost = p.cost + d.cost;
      if (choice.cost.has_value() && !(cost < *choice.cost)) break;
      if (pools.pair(p.candidate->incarnation, d.candidate->incarnation) != PairState::kUp) continue;
      choice.Consider(p.candidate, d.candidate, cost);
      break;
    }
    if (decode.empty() || (choice.cost.has_value() && !(p.cost + decode.front().cost < *choice.cost))) break;
  }
}

// Workers that may compute prompt and answer though their role is one of them.
bool MayDoBoth(const Candidate& c, const Pools& pools, const Demand& demand, const PolicyOptions& options) {
  const bool prompts = c.load->role() == pb::ROLE_PREFILL;
  if (options.fallback && (prompts ? pools.decode.empty() : pools.prefill.empty())) return true;
  return !prompts && demand.prompt_tokens - c.cached_tokens <= options.local_prefill_tokens;
}

Choice Cheapest(const Pools& pools, const Demand& demand, const PolicyOptions& options, std::mt19937_64& rng) {
  const auto offers = [&](const std::vector<Candidate>& candidates, const Demand& d, auto cost) {
    std::vector<Offer> made;
    for (const Candidate& c : candidates) {
      if (CanTake(c, d)) made.push_back({&c, cost(c, d, options.policy)});
    }
    Rank(made, rng);
    return made;
  };
  Choice choice;
  for (const Offer& both : offers(pools.both, demand, BothCost)) {
    choice.Consider(nullptr, both.candidate, both.cost);
    break;
  }
  const std::vector<Offer> prefill = offers(pools.prefill, AtPrefill(demand), PromptCost);
  if (demand.answer_tokens == 1) {
    if (!prefill.empty()) choice.Consider(prefill.front().candidate, nullptr, prefill.front().cost);
  } else {
    ConsiderPairs(prefill, offers(pools.decode, demand, AnswerCost), pools, choice);
  }
  for (const std::vector<Candidate>* pool : {&pools.decode, &pools.prefill}) {
    for (const Candidate& c : *pool) {
      if (!MayDoBoth(c, pools, demand, options) || !c.active || !Fits(c, demand)) continue;
      if (!HasRoom(*c.load, demand, c.cached_tokens, true)) continue;
      choice.Consider(nullptr, &c, BothCost(c, demand, options.policy));
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

bool FitsSomewhere(const Pools& pools, const Demand& demand, const PolicyOptions& options) {
  if (AnyFits(pools.both, demand)) return true;
  if (options.fallback && pools.prefill.empty() && AnyFits(pools.decode, demand)) return true;
  if (options.fallback && pools.decode.empty() && AnyFits(pools.prefill, demand)) return true;
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

std::string WhyNever(const Pools& pools, const Demand& demand, const PolicyOptions& options) {
  if (TooManyChoices(pools, demand)) {
    return absl::StrFormat(
        "sampling.n: %d answers are more than any worker runs at once; ask for less, or start a worker with a larger "
        "--max-seqs",
        demand.choices);
  }
  if (pools.both.empty() && !pools.prefill.empty() && !AnyFits(pools.prefill, AtPrefill(demand))) {
    return absl::StrFormat(
        "prompt: its %d tokens are more than any prefill worker can hold (%d tokens); ask for less, or start a prefill "
        "worker with more KV memory",
        demand.prompt_tokens, Largest(pools.prefill));
  }
  Demand one = demand;
  one.choices = 1;
  if (demand.choices > 1 && FitsSomewhere(pools, one, options)) {
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

std::string ExplainAll(const Pools& pools, const Demand& demand, Policy policy) {
  std::string text = absl::StrCat(PolicyName(policy), " ");
  for (const Candidate& both : pools.both) text += Explain(both, demand, policy);
  for (const Candidate& p : pools.prefill) text += Explain(p, AtPrefill(demand), policy);
  for (const Candidate& d : pools.decode) text += Explain(d, demand, policy);
  for (const Candidate& p : pools.prefill) {
    for (const Candidate& d : pools.decode) {
      if (pools.pair(p.incarnation, d.incarnation) == PairState::kUp) continue;
      absl::StrAppendFormat(&text, "[%s with %s: the pair is not up]", p.name, d.name);
    }
  }
  return text;
}

}  // namespace

const char* PolicyName(Policy policy) {
  switch (policy) {
    case Policy::kSlo:
      return "slo";
    case Policy::kPrefix:
      return "prefix";
    case Policy::kLeastLoaded:
      return "least-loaded";
    case Policy::kRoundRobin:
      return "round-robin";
  }
  return "unknown";
}

std::optional<Policy> PolicyOf(std::string_view name) {
  for (Policy policy : {Policy::kSlo, Policy::kPrefix, Policy::kLeastLoaded, Policy::kRoundRobin}) {
    if (name == PolicyName(policy)) return policy;
  }
  return std::nullopt;
}

Demand AtPrefill(const Demand& demand) {
  Demand at = demand;
  at.answer_tokens = demand.answer_tokens == 1 ? 1 : 0;
  at.headroom = 0;
  return at;
}

double PredictedTtftMs(const Pools& pools, const Demand& demand, int64_t ahead) {
  double per_ms = 0;  // tokens, all together
  double best = std::numeric_limits<double>::infinity();
  const auto add = [&](const std::vector<Candidate>& candidates) {
    for (const Candidate& c : candidates) {
      per_ms += 1 / c.load->ms_per_prompt_token();
      best = std::min(best, TtftMs(c, demand, true));
    }
  };
  add(pools.both);
  add(pools.prefill.empty() && pools.both.empty() ? pools.decode : pools.prefill);
  return per_ms > 0 ? best + double(ahead) / per_ms : best;
}

int64_t TokenCapacity(const WorkerLoad& load) {
  const int64_t pool = load.blocks_total() * load.block_size();
  return load.context_length() > 0 ? std::min<int64_t>(pool, load.context_length()) : pool;
}

std::string WhoIsMissing(const Pools& pools, const Demand& demand, const PolicyOptions& options) {
  if (!pools.both.empty()) return "";
  if (pools.prefill.empty() && pools.decode.empty()) {
    return "no worker is alive; start one, or try again when one has announced itself";
  }
  if (pools.prefill.empty() && options.fallback) return "";
  if (pools.prefill.empty()) {
    return "no prefill worker is alive; start one, or try again when one has announced itself";
  }
  if (demand.answer_tokens == 1 || (pools.decode.empty() && options.fallback)) return "";
  if (pools.decode.empty()) return "no decode worker is alive; start one, or try again when one has announced itself";
  for (const Candidate& p : pools.prefill) {
    for (const Candidate& d : pools.decode) {
      if (pools.pair(p.incarnation, d.incarnation) != PairState::kRefused) return "";
    }
  }
  return "no prefill worker fits any decode worker; the router's log says why, and workers of one build and model fit";
}

Placement Place(const Pools& pools, const Demand& demand, const PolicyOptions& options, bool explain,
                std::mt19937_64& rng) {
  Placement placement;
  if (explain) placement.explanation = ExplainAll(pools, demand, options.policy);
  if (std::string missing = WhoIsMissing(pools, demand, options); !missing.empty()) {
    placement.explanation = std::move(missing);
  } else if (const Choice choice = Cheapest(pools, demand, options, rng); choice.cost.has_value()) {
    placement.kind = Placement::Kind::kPlace;
    placement.prefill = choice.prefill == nullptr ? 0 : choice.prefill->incarnation;
    placement.decode = choice.decode == nullptr ? 0 : choice.decode->incarnation;
    placement.prefill_hit = (choice.prefill == nullptr ? choice.decode : choice.prefill)->cached_tokens;
  } else if (FitsSomewhere(pools, demand, options)) {
    placement.kind = Placement::Kind::kWait;
  } else {
    placement.kind = Placement::Kind::kNever;
    placement.explanation = WhyNever(pools, demand, options);
  }
  return placement;
}

}  // namespace sluice::router
