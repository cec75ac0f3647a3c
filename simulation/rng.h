// The one source of chance of a simulation: small, fast, and the same on every machine (the standard library's
// distributions are not).
#pragma once

#include <cmath>
#include <cstdint>

#include "absl/time/time.h"

namespace sluice::simulation {

// A finaliser: equal inputs give equal outputs, close ones unrelated ones.
inline uint64_t Mix(uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9u;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}
inline uint64_t Mix(uint64_t a, uint64_t b) {
  return Mix(Mix(a + 0x9e3779b97f4a7c15u) ^ b);
}

class Rng {
 public:
  explicit Rng(uint64_t seed) : state_(Mix(seed + 1)) {}

  uint64_t Next() { return Mix(state_ += 0x9e3779b97f4a7c15u); }
  uint64_t Below(uint64_t n) { return n == 0 ? 0 : Next() % n; }
  int Between(int low, int high) { return low + int(Below(uint64_t(high - low + 1))); }  // both included
  bool OneIn(int n) { return n > 0 && Below(uint64_t(n)) == 0; }                         // 0: never
  double Uniform() { return double(Next() >> 11) * 0x1p-53; }                            // [0, 1)
  double Exponential() { return -std::log1p(-Uniform()); }                               // mean 1
  absl::Duration Between(absl::Duration low, absl::Duration high) { return low + Uniform() * (high - low); }

 private:
  uint64_t state_;
};

}  // namespace sluice::simulation
