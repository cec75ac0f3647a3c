#include "kvtransfer/checksum.h"

#include <algorithm>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace sluice::kvtransfer {
namespace {

std::vector<std::byte> RandomBytes(size_t n, uint64_t seed) {
  std::mt19937_64 rng(seed);
  std::vector<std::byte> bytes(n);
  for (auto& b : bytes) b = std::byte(rng());
  return bytes;
}

// The definition, one byte at a time, from the last word to the first.
uint64_t Naive(std::span<const std::byte> bytes) {
  uint64_t total = Mix(bytes.size(), uint64_t{1} << 63);
  for (size_t i = (bytes.size() + 7) / 8; i-- > 0;) {
    uint64_t word = 0;
    for (size_t b = 0; b < 8 && i * 8 + b < bytes.size(); ++b) word |= uint64_t(bytes[i * 8 + b]) << (8 * b);
    total += Mix(word, i);
  }
  return total;
}

TEST(Checksum, EqualsTheDefinitionAtEveryLengthAndAlignment) {
  const auto bytes = RandomBytes(300, 1);
  for (size_t begin = 0; begin < 9; ++begin) {
    for (size_t n = 0; begin + n <= bytes.size(); ++n) {
      const std::span<const std::byte> part(bytes.data() + begin, n);
      ASSERT_EQ(Checksum(part), Naive(part)) << begin << " " << n;
    }
  }
}

TEST(Checksum, IsTheSameInSteps) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 200; ++round) {
    const auto bytes = RandomBytes(random() % 3000, random());
    std::vector<std::byte> written(bytes.size());  // what is not covered yet holds something else
    RunningChecksum sum(written);
    for (size_t at = 0; at < bytes.size();) {
      const size_t step = std::min<size_t>(random() % 700, bytes.size() - at);
      std::copy_n(bytes.begin() + ptrdiff_t(at), step, written.begin() + ptrdiff_t(at));
      sum.Cover(at += step);
    }
    ASSERT_EQ(sum.Finish(), Naive(bytes)) << bytes.size();
  }
}

TEST(Checksum, SeesEveryFlippedBitAndEverySwappedWord) {
  auto bytes = RandomBytes(256, 2);
  const uint64_t good = Checksum(bytes);
  for (size_t i = 0; i < bytes.size() * 8; ++i) {
    bytes[i / 8] ^= std::byte(1 << (i % 8));
    ASSERT_NE(Checksum(bytes), good) << "bit " << i;
    bytes[i / 8] ^= std::byte(1 << (i % 8));
  }
  for (size_t a = 0; a < 32; ++a) {
    for (size_t b = a + 1; b < 32; ++b) {
      std::swap_ranges(&bytes[a * 8], &bytes[a * 8] + 8, &bytes[b * 8]);
      ASSERT_NE(Checksum(bytes), good) << a << " " << b;
      std::swap_ranges(&bytes[a * 8], &bytes[a * 8] + 8, &bytes[b * 8]);
    }
  }
}

// Two words with the top bit flipped would cancel in a linear sum.
TEST(Checksum, SeesPairsOfFlippedTopBits) {
  auto bytes = RandomBytes(64, 3);
  const uint64_t good = Checksum(bytes);
  for (size_t a = 0; a < 8; ++a) {
    for (size_t b = a + 1; b < 8; ++b) {
      bytes[a * 8 + 7] ^= std::byte(0x80), bytes[b * 8 + 7] ^= std::byte(0x80);
      EXPECT_NE(Checksum(bytes), good);
      bytes[a * 8 + 7] ^= std::byte(0x80), bytes[b * 8 + 7] ^= std::byte(0x80);
    }
  }
}

TEST(Checksum, SeesTruncationInsideZeros) {
  const std::vector<std::byte> zeros(64);
  for (size_t n = 0; n < 64; ++n) EXPECT_NE(Checksum({zeros.data(), n}), Checksum({zeros.data(), 64}));
}

// From the definition, computed with Python integers. Pinned: a GPU kernel and every other build must give these.
TEST(Checksum, GoldenValues) {
  EXPECT_EQ(Checksum({}), 0x1098d517f927d382u);
  std::vector<std::byte> count(20);
  for (size_t i = 0; i < count.size(); ++i) count[i] = std::byte(i);
  EXPECT_EQ(Checksum(count), 0xfad87eed627a2f5u);
  EXPECT_EQ(Checksum(std::vector<std::byte>(4096)), 0x5579a51f68581407u);
}

}  // namespace
}  // namespace sluice::kvtransfer
