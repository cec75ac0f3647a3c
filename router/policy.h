// Which workers get the next request, or whether it should wait. A pure cost function over the load model, in tokens:
//
//   cost(both)    = prompt backlog + own prompt + cost(decode)
//   cost(P, D)    = cost(P) + cost(D)
//   cost(prefill) = prompt backlog + own prompt
//   cost(decode)  = answer tokens that may still come + own answers x (sequences there + own); among equals, fewer
//                   blocks in use
//
// A token of an answer shares its step with every sequence that runs, so an own token costs as many rows as there are
// sequences: a few long answers are better company than many short ones.
//
// The least cost among those that have room wins, ties at random: a worker of role `both`, or a pair (P, D) that is up.
// An answer of one token needs no D. Room means:
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
#include <random>
#include <string>
#include <vector>

#include "router/load_model.h"
#include "router/pair_state.h"

namespace sluice::router {

struct Candidate {
  uint64_t incarnation = 0;
  std::string name;
  const WorkerLoad* load = nullptr;
  bool active = false;        // may get work now; otherwise it may be back soon
  bool refused_ever = false;  // has said NEVER_FITS to this request
  bool shunned = false;       // has failed this request: others come first, whatever the cost
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
  std::string explanation;  // the formula with its numbers, if asked for; otherwise for people: the limit, or who is
                            // missing
};

Placement Place(const Pools& pools, const Demand& demand, bool explain, std::mt19937_64& rng);

// Empty if the workers that are alive can serve such a request one day; otherwise who is missing, for people.
std::string WhoIsMissing(const Pools& pools, const Demand& demand);

// What a request asks of its prefill worker.
Demand AtPrefill(const Demand& demand);

// Prompt + answer tokens that the worker can ever hold.
int64_t TokenCapacity(const WorkerLoad& load);

}  // namespace sluice::router
