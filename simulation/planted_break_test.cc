// The faults test finds what it is for: this program's core has one rule broken (simulation/CMakeLists.txt says which),
// and few seeds are enough to see it.
#include <gtest/gtest.h>

#include <cstdint>
#include <iostream>

#include "simulation/fault_run.h"

namespace sluice::simulation {
namespace {

constexpr uint64_t kSeeds = 500;

TEST(PlantedBreakTest, IsFound) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const FaultRunResult run = RunWithFaults({.seed = seed});
    if (run.violation.empty()) continue;
    std::cout << "found with seed " << seed << ": " << run.violation << "\n";
    return;
  }
  ADD_FAILURE() << "nobody noticed in " << kSeeds << " seeds";
}

}  // namespace
}  // namespace sluice::simulation
