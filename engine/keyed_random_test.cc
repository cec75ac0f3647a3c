#include "engine/keyed_random.h"

#include <array>
#include <cmath>
#include <set>
#include <vector>

#include "gtest/gtest.h"

namespace sluice::engine {
namespace {

using Block = std::array<uint32_t, 4>;

// The known-answer vectors of philox4x32-10 in Random123 1.14 (tests/kat_vectors).
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, {0, 0}), (Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox4x32({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}), (Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(KeyedUniform, DependsOnEveryPartOfTheKeyAndOnTheIndexOnly) {
  const RandomKey base{.seed = 7, .choice = 1, .position = 2};
  std::set<double> values;
  const auto add = [&](RandomKey key, uint32_t index) { values.insert(KeyedUniform(key)(index)); };
  add(base, 0);
  add(base, 1);
  add(base, 2);
  add({.seed = 8, .choice = 1, .position = 2}, 0);
  add({.seed = 7 + (uint64_t{1} << 32), .choice = 1, .position = 2}, 0);
  add({.seed = 7, .choice = 2, .position = 2}, 0);
  add({.seed = 7, .choice = 1, .position = 3}, 0);
  add({.seed = 7, .choice = 1, .position = 2, .purpose = RandomPurpose(1)}, 0);
  EXPECT_EQ(values.size(), 8u);

  // The remembered block changes no value: any order of indices, any instance.
  KeyedUniform once(base);
  for (uint32_t index : {5u, 0u, 1u, 49151u, 4u, 5u, 0u}) EXPECT_EQ(once(index), KeyedUniform(base)(index));
}

TEST(KeyedUniform, ManyAtATimeAreTheSameNumbers) {
  for (const RandomKey& key : {RandomKey{}, RandomKey{0xFEDCBA9876543210, 5, 123456, RandomPurpose::kDraft},
                               RandomKey{~uint64_t{0}, ~0u, ~0u, RandomPurpose::kResidual}}) {
    for (uint32_t first : {0u, 2u, 512u, 49150u}) {
      for (size_t count : {0, 1, 7, 8, 9, 16, 100, 513}) {
        std::vector<double> many(count);
        FillUniform(key, first, many);
        KeyedUniform one(key);
        for (size_t i = 0; i < count; ++i) ASSERT_EQ(many[i], one(first + uint32_t(i))) << first << " + " << i;
      }
    }
  }
}

TEST(KeyedUniform, IsUniformInTheOpenInterval) {
  KeyedUniform uniform({.seed = 12345});
  constexpr int kDraws = 200000, kBins = 64;
  std::array<int, kBins> count{};
  double sum = 0;
  for (int i = 0; i < kDraws; ++i) {
    const double u = uniform(i);
    ASSERT_GT(u, 0.0);
    ASSERT_LT(u, 1.0);
    ASSERT_EQ(1.0 - (1.0 - u), u);
    ++count[int(u * kBins)];
    sum += u;
  }
  double chi2 = 0;
  for (int n : count) chi2 += (n - double(kDraws) / kBins) * (n - double(kDraws) / kBins) / (double(kDraws) / kBins);
  EXPECT_LT(chi2, 130);  // 63 degrees of freedom: p = 1e-6 at 131
  EXPECT_NEAR(sum / kDraws, 0.5, 0.004);
}

}  // namespace
}  // namespace sluice::engine
