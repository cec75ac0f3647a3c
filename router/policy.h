// Which worker gets the next request, or whether it should wait. A pure cost function over the load model.
//
//   cost(worker) = prompt backlog + answer tokens that may still come + the request's own tokens         (in tokens)
//
// The least cost among the workers that have room wins, ties at random. Room means: the blocks fit, fewer requests than
// the worker runs in a step, and a prompt backlog of less than a step's tokens. So a worker never idles (reports come
// every step), and the rest stays in the router's queue, where order and deadlines hold.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "router/load_model.h"

namespace sluice::router {

struct Candidate {
  uint64_t incarnation = 0;
  std::string name;
  const WorkerLoad* load = nullptr;
  bool active = false;        // may get work now; otherwise it may be back soon
  bool refused_ever = false;  // has said NEVER_FITS to this request
};

struct Placement {
  enum class Kind {
    kPlace,     // on `incarnation`
    kWait,      // room will come
    kNever,     // larger than every live worker
    kNoWorker,  // nobody is alive
  };
  Kind kind = Kind::kNoWorker;
  uint64_t incarnation = 0;
  std::string explanation;  // the formula with its numbers, if asked for; for kNever: what the limit is
};

Placement Place(const std::vector<Candidate>& candidates, const Demand& demand, bool explain, std::mt19937_64& rng);

// Prompt + answer tokens that the worker can ever hold.
int64_t TokenCapacity(const WorkerLoad& load);

}  // namespace sluice::router
