// What goes wrong, at random moments from a seed: processes, machines, streams and links. Counts what took effect.
//
// Some slots can be spared: nothing happens to them, to the ways between them, nor to their ways to the router.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "simulation/cluster.h"

namespace sluice::simulation {

// By name.
using Counters = std::map<std::string, int64_t>;

class Faults {
 public:
  Faults(Cluster& cluster, Rng rng, std::set<int> spared) : cluster_(cluster), rng_(rng), spared_(std::move(spared)) {}

  void Inject();  // one, if the die finds somebody to harm
  // No more faults: networks heal, everybody is back and works as he should.
  void End(const std::vector<WorkerModel>& good);

  const Counters& counters() const { return counters_; }

 private:
  int AnySlot();  // that may be harmed; -1: none
  void Restart(int slot);
  void HarmProcess(int slot);
  void HarmWork(int slot);
  void HarmStream(int slot);
  void HarmNetwork(int slot);
  void Count(const char* what) { ++counters_[what]; }

  Cluster& cluster_;
  Rng rng_;
  const std::set<int> spared_;
  bool over_ = false;
  Counters counters_;
};

}  // namespace sluice::simulation
