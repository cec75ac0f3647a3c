// Which workers get the next request, or whether it should wait. Pure cost functions over the load model.
//
// By the policy `slo`, the default, in milliseconds:
//
//   cost(P, D) = ttft(P) + L tpot(D)             cost(both) = ttft(both) + L tpot(both)
//   ttft(W)    = (backlog + prompt - credit) / rate
//   credit     = prefix hit * blocks / (blocks + blocks that the backlog will fill)
//   tpot(W)    = step(sequences + own) * (1 + max(0, use - 0.8) * 5)
//
// `rate` and `step` are learned (load_model.h); L is what the answer may have left, 256 at most. The credit decays
// since a backlog drives out what is cached now. `use` is the share of blocks that are taken, with the request: memory
// that runs out ends in recomputation. A prefix is worth what it saves at that worker and no more, so a hot spot costs
// its queue, and nothing is cut off by a threshold. If the request has limits of its own (SLO), who is predicted to
// keep them comes first.
//
// Others, for comparison: `prefix` (the longest hit, then the least backlog), `least-loaded` (as `slo` without
// prefixes), `round-robin` (whoever was asked longest ago).
//
// Whoever has failed the request before comes last under each. Ties are drawn at random. An answer of one token needs
// no D. Where no worker of one role is alive, those of the other do both (`fallback`). A decode worker may also compute
// a prompt of which little is left to compute (`local_prefill_tokens`), where that is predicted to be better.
//
// Room means:
//  - both: the blocks fit, its step has rows for the choices beside those it has, and a prompt backlog of less than a
//    step's tokens;
//  - prefill: the prompt's blocks fit, and the prompt backlog is less than a step's tokens, or, with the own prompt, at
//    most one and a half steps beyond the step that runs;
//  - decode: the blocks fit, and its step has rows for the choices beside those it has.
// So a worker never idles (reports come every step), and the rest stays in the router's queue, where order and
// deadlines hold.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "router/load_model.h"
#include "router/pair_state.h"

namespace sluice::router {

enum class Policy { kSlo, kPrefix, kLeastLoaded, kRoundRobin };

const char* PolicyName(Policy policy);
std::optional<Policy> PolicyOf(std::string_view name);

struct PolicyOptions {
  Policy policy = Policy::kSlo;
  int local_prefill_tokens = 0;  // of an uncached prompt, up to which a decode worker may compute it; 0: never
  bool fallback = true;          // where one role is missing the other does both
};

struct Candidate {
  uint64_t incarnation = 0;
  std::string_view name;
  const WorkerLoad* load = nullptr;
  bool active = false;        // may get work now; otherwise it may be back soon
  bool refused_ever = false;  // has said NEVER_FITS to this request
  bool shunned = false;       // has failed this request
  int cached_tokens = 0;      // of the prompt, which it has or is about to have
};

// The workers that are alive.
struct Pools {
  std::vector<Candidate> both;
  std::vector<Candidate> prefill;
  std::vector<Candidate> decode;
  std::function<PairState(uint64_t prefill, uint64_t decode)> pair;
};

struct Placement {
  enum class Kind {
    kPlace,     // on `prefill` and `decode`
    kWait,      // room will come
    kNever,     // larger than what is alive
    kNoWorker,  // a role is missing
  };
  Kind kind = Kind::kNoWorker;
  uint64_t prefill = 0;     // 0: `decode` computes the prompt
  uint64_t decode = 0;      // or `both`; 0: an answer of one token
  int prefill_hit = 0;      // predicted cached tokens at who computes the prompt
  std::string explanation;  // the formula with its numbers, if asked for; otherwise for people: the limit, or who is
                            // missing
};

Placement Place(const Pools& pools, const Demand& demand, const PolicyOptions& options, bool explain,
                std::mt19937_64& rng);

// Empty if the workers that are alive can serve such a request one day; otherwise who is missing, for people.
std::string WhoIsMissing(const Pools& pools, const Demand& demand, const PolicyOptions& options);

// What a request asks of its prefill worker.
Demand AtPrefill(const Demand& demand);

// Predicted milliseconds until the first token of a request that comes after `ahead` prompt tokens of the queue, at the
// best: all who compute prompts share them.
double PredictedTtftMs(const Pools& pools, const Demand& demand, int64_t ahead);

// Prompt + answer tokens that the worker can ever hold.
int64_t TokenCapacity(const WorkerLoad& load);

}  // namespace sluice::router
