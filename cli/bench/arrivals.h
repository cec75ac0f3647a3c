// When requests come: an open-loop schedule that does not wait for answers. Pure.
#pragma once

#include <vector>

#include "simulation/rng.h"

namespace sluice::cli::bench {

// `count` times in seconds, ascending, the first at 0. Gaps are drawn from a gamma distribution with mean 1 / rate and
// shape `burstiness`: 1 is a Poisson process, below 1 comes in bursts, above 1 is steadier; their coefficient of
// variation is 1 / sqrt(burstiness). An infinite rate gives zeros. Needs rate > 0 and burstiness > 0. Equal seeds give
// the same times on every machine.
std::vector<double> Arrivals(int count, double rate, double burstiness, simulation::Rng& rng);

// One draw with mean `shape`; needs shape > 0.
double DrawGamma(double shape, simulation::Rng& rng);

}  // namespace sluice::cli::bench
