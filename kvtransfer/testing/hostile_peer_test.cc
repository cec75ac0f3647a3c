#include "kvtransfer/testing/hostile_peer.h"

#include <cstdlib>
#include <iostream>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace sluice::kvtransfer {
namespace {

HostileCounts RunMany(void (*run)(std::span<const uint8_t>, HostileCounts&), int rounds) {
  const char* given = std::getenv("SLUICE_SEED");
  const uint64_t seed = given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device()();
  std::cout << "seed " << seed << std::endl;
  std::mt19937_64 rng(seed);
  HostileCounts counts;
  for (int round = 0; round < rounds; ++round) {
    std::vector<uint8_t> bytes(rng() % 600);
    // Some streams are calm: large bytes are the ordinary choices.
    const uint8_t calm = rng() % 2 == 0 ? 0 : 4;
    for (uint8_t& byte : bytes) byte = uint8_t(rng() % 256) | (rng() % 4 != 0 ? calm : 0);
    run(bytes, counts);
  }
  return counts;
}

TEST(HostilePeer, ASender) {
  const HostileCounts counts = RunMany(&HostileSender, 20000);
  EXPECT_GT(counts.scattered, 1000);
  EXPECT_GT(counts.committed, 10);
  EXPECT_GT(counts.aborted, 1000);
  EXPECT_GT(counts.failed, 1000);
}

TEST(HostilePeer, AReceiver) {
  const HostileCounts counts = RunMany(&HostileReceiver, 20000);
  EXPECT_GT(counts.gathered, 1000);
  EXPECT_GT(counts.committed, 10);
  EXPECT_GT(counts.aborted, 1000);
}

TEST(HostilePeer, Frames) {
  const HostileCounts counts = RunMany(&HostileFrames, 50000);
  EXPECT_GT(counts.frames, 1000);
  EXPECT_GT(counts.refused, 1000);
}

}  // namespace
}  // namespace sluice::kvtransfer
