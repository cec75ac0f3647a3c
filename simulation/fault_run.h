// One run of the faults test: a small cluster, clients and faults, all from one seed; first trouble, then calm, until
// every request has ended and nothing of them is left. The same seed gives the same run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "simulation/faults.h"

namespace sluice::simulation {

struct FaultRunOptions {
  uint64_t seed = 1;
  int64_t events = 1000;  // of the core, while things go wrong
  bool trace = false;     // prints what the core hears and says
};

struct FaultRunResult {
  std::string violation;  // the first; empty: none
  uint64_t digest = 0;    // of all that the core said
  std::string cluster;    // what it was, for people
  int64_t events = 0;
  int64_t requests = 0;
  int64_t good = 0;       // whole answers
  int64_t innocent = 0;   // neither cancelled nor in a hurry, in a cluster of which a pair always lived
  int64_t exhausted = 0;  // of them: ended by the limit of moves
  int64_t full = 0;       // of them: turned away by a full queue
  Counters counters;      // faults, and what they did
};

FaultRunResult RunWithFaults(const FaultRunOptions& options);

}  // namespace sluice::simulation
