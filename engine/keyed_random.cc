#include "engine/keyed_random.h"

namespace sluice::engine {

std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  constexpr int kRounds = 10;
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * counter[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57} * counter[2];
    counter = {uint32_t(p1 >> 32) ^ counter[1] ^ key[0], uint32_t(p1), uint32_t(p0 >> 32) ^ counter[3] ^ key[1],
               uint32_t(p0)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

KeyedUniform::KeyedUniform(const RandomKey& key)
    : counter_{0, key.position, key.choice, uint32_t(key.purpose)},
      key_{uint32_t(key.seed), uint32_t(key.seed >> 32)},
      block_(Philox4x32(counter_, key_)) {}

double KeyedUniform::operator()(uint32_t index) {
  if (counter_[0] != index / 2) {
    counter_[0] = index / 2;
    block_ = Philox4x32(counter_, key_);
  }
  const int half = int(index & 1) * 2;
  const uint64_t bits = (uint64_t{block_[half + 1]} << 32) | block_[half];
  return (double(bits >> 12) + 0.5) * 0x1p-52;
}

}  // namespace sluice::engine
