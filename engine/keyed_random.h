// Random numbers that are a function of what they are for: (seed, choice, position, purpose) and an index.
//
// Promise: no state. The same key gives the same number on every worker, in every batch and after every replay; keys
// that differ in anything give independent numbers. The generator is Philox4x32-10 (Salmon, Moraes, Dror, Shaw:
// "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011): the seed is its key, the rest its counter.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace sluice::engine {

// The numbers are part of the wire's meaning: a replay on another worker must draw the same. Never renumber.
enum class RandomPurpose : uint32_t {
  kToken = 0,     // the token at a position
  kAccept = 1,    // whether the classic speculative rule accepts a draft
  kResidual = 2,  // the token in place of one that it refused
  kDraft = 3,     // a drafter's own draw, where it wants one that shares no noise with the target
};

struct RandomKey {
  uint64_t seed = 0;
  uint32_t choice = 0;
  uint32_t position = 0;
  RandomPurpose purpose = RandomPurpose::kToken;
};

std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// A sequence of uniform numbers by index. Remembers the last block of the generator, so ascending indices cost half.
class KeyedUniform {
 public:
  explicit KeyedUniform(const RandomKey& key);

  // In (0, 1), both ends excluded; a multiple of 2^-53, so that 1 - u is exact.
  double operator()(uint32_t index);

 private:
  std::array<uint32_t, 4> counter_;
  std::array<uint32_t, 2> key_;
  std::array<uint32_t, 4> block_;  // the two numbers of the indices 2 * counter_[0] and the next
};

// out[i] = KeyedUniform(key)(first + i), bit for bit, many at a time. REQUIRES: `first` is even.
void FillUniform(const RandomKey& key, uint32_t first, std::span<double> out);

}  // namespace sluice::engine
