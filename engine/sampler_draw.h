// A draw from weights by a race of exponentials: each token gets e = -log(u) / weight and the smallest e wins, which
// happens with probability weight / sum. The winner does not depend on the order of the offers; ties go to the lower
// id.
#pragma once

#include <cstdint>
#include <limits>
#include <span>

#include "engine/deterministic_math.h"
#include "engine/keyed_random.h"

namespace sluice::engine {

class ExponentialRace {
 public:
  // weight > 0; u in (0, 1), the token's own.
  void Offer(int32_t id, double weight, double u) {
    // -log(u) >= 1 - u, so most tokens lose without a logarithm; the slack covers the rounding of DetLog.
    if (1.0 - u > best_ * weight * (1.0 + 1e-9)) return;
    const double e = -DetLog(u) / weight;
    if (e < best_ || (e == best_ && id < winner_)) {
      best_ = e;
      winner_ = id;
    }
  }
  int32_t winner() const { return winner_; }
  double best() const { return best_; }

 private:
  double best_ = std::numeric_limits<double>::infinity();
  int32_t winner_ = 0;
};

// The index of a weight, drawn with the key. The weights need not sum to 1; some are positive.
inline int32_t DrawFrom(std::span<const double> weights, const RandomKey& key) {
  KeyedUniform uniform(key);
  ExponentialRace race;
  for (size_t i = 0; i < weights.size(); ++i) {
    if (weights[i] > 0.0) race.Offer(int32_t(i), weights[i], uniform(uint32_t(i)));
  }
  return race.winner();
}

}  // namespace sluice::engine
