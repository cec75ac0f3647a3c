#include "cli/bench/arrivals.h"

#include <cmath>

namespace sluice::cli::bench {
namespace {

// By the polar method; the second value of a pair is not kept, so that a draw depends on the state of `rng` alone.
double DrawNormal(simulation::Rng& rng) {
  for (;;) {
    const double x = 2 * rng.Uniform() - 1, y = 2 * rng.Uniform() - 1;
    const double square = x * x + y * y;
    if (square > 0 && square < 1) return x * std::sqrt(-2 * std::log(square) / square);
  }
}

}  // namespace

// Marsaglia and Tsang, "A simple method for generating gamma variables", 2000.
double DrawGamma(double shape, simulation::Rng& rng) {
  if (shape == 1) return rng.Exponential();
  if (shape < 1) {
    const double uniform = 1 - rng.Uniform();  // (0, 1]
    return DrawGamma(shape + 1, rng) * std::pow(uniform, 1 / shape);
  }
  const double d = shape - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  for (;;) {
    const double x = DrawNormal(rng);
    const double root = 1 + c * x;
    if (root <= 0) continue;
    const double v = root * root * root;
    if (std::log(1 - rng.Uniform()) < 0.5 * x * x + d * (1 - v + std::log(v))) return d * v;
  }
}

std::vector<double> Arrivals(int count, double rate, double burstiness, simulation::Rng& rng) {
  std::vector<double> times;
  times.reserve(size_t(count));
  double at = 0;
  for (int i = 0; i < count; ++i) {
    times.push_back(at);
    if (std::isfinite(rate)) at += DrawGamma(burstiness, rng) / (burstiness * rate);
  }
  return times;
}

}  // namespace sluice::cli::bench
