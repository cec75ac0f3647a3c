// Random tensors in any storage type, as raw blocks: tests need weights of every type, not a quantiser.
//
// Deterministic: integer arithmetic and exactly rounded float operations only, so that a seed gives the same bytes on
// every machine.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/dtype.h"

namespace sluice::engine {

// Counter-based (SplitMix64).
class TestRandom {
 public:
  explicit TestRandom(uint64_t seed) : state_(seed) {}
  uint64_t Next();
  uint32_t Below(uint32_t n) { return uint32_t((Next() >> 32) * n >> 32); }
  float Uniform() { return float(Next() >> 40) * 0x1p-24f; }  // [0, 1)
  float Normal();                                             // about normal: mean 0, deviation 1

 private:
  uint64_t state_;
};

// rows x cols values of mean about 0 and standard deviation about `deviation`. REQUIRES: cols is whole blocks.
std::string RandomTensor(kernels::DType type, int64_t rows, int64_t cols, float deviation, TestRandom& random);

}  // namespace sluice::engine
