// The generator of all randomness: Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel Random Numbers: As Easy as 1,
// 2, 3", SC 2011), for CPU and GPU. What its counter and key are made of: engine/keyed_random.h.
#pragma once

#include <cstdint>

#include "kernels/deterministic_math.h"

namespace sluice::kernels {

inline constexpr uint32_t kPhiloxMultiplier0 = 0xD2511F53, kPhiloxMultiplier1 = 0xCD9E8D57;
inline constexpr uint32_t kPhiloxWeyl0 = 0x9E3779B9, kPhiloxWeyl1 = 0xBB67AE85;
inline constexpr int kPhiloxRounds = 10;

struct PhiloxBlock {
  uint32_t word[4];
};

SLUICE_HOST_DEVICE inline PhiloxBlock Philox(PhiloxBlock counter, uint32_t key0, uint32_t key1) {
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const uint64_t p0 = uint64_t{kPhiloxMultiplier0} * counter.word[0];
    const uint64_t p1 = uint64_t{kPhiloxMultiplier1} * counter.word[2];
    counter = {{uint32_t(p1 >> 32) ^ counter.word[1] ^ key0, uint32_t(p1), uint32_t(p0 >> 32) ^ counter.word[3] ^ key1,
                uint32_t(p0)}};
    key0 += kPhiloxWeyl0;
    key1 += kPhiloxWeyl1;
  }
  return counter;
}

// Two words as a number in (0, 1), both ends excluded; a multiple of 2^-53, so that 1 - u is exact.
SLUICE_HOST_DEVICE inline double PhiloxUniform(uint32_t low, uint32_t high) {
  const uint64_t bits = (uint64_t{high} << 32) | low;
  return Times(Plus(double(bits >> 12), 0.5), 0x1p-52);
}

}  // namespace sluice::kernels
