#include "engine/sampler_loops.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "engine/deterministic_math.h"
#include "gtest/gtest.h"
#include "kernels/backend.h"

namespace sluice::engine {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

// Every size around the lanes and the pieces, with what logits should not have.
std::vector<float> RandomRow(std::mt19937& random, size_t size) {
  std::vector<float> row(size);
  const float scale = random() % 4 == 0 ? 1e37f : random() % 2 == 0 ? 20.0f : 0.01f;
  for (float& x : row) {
    x = scale * (float(random() % 2001) / 1000.0f - 1.0f);
    if (random() % 50 == 0) x = std::vector<float>{kInf, -kInf, NAN, -0.0f}[random() % 4];
  }
  return row;
}

size_t RandomSize(std::mt19937& random) {
  const size_t sizes[] = {0, 1, 7, 8, 9, 31, 32, 33, 63, 64, 65, 255, 256, 257, 1000};
  return sizes[random() % std::size(sizes)];
}

TEST(SamplerLoops, BothCompilationsGiveTheSameBits) {
  for (int seed = 0; seed < 500; ++seed) {
    std::mt19937 random(seed);
    std::vector<float> a = RandomRow(random, RandomSize(random)), b = a;
    std::vector<float> maxima(size_t(kernels::NumLogitBlocks(int64_t(a.size())))), least_maxima = maxima;
    const float max = CleanAndMax(a, maxima);
    ASSERT_EQ(max, least_cpu::CleanAndMax(b, least_maxima)) << "seed " << seed;
    ASSERT_EQ(maxima, least_maxima);
    ASSERT_EQ(a, b);
    if (a.empty() || max == -kInf) continue;
    const float temperature = random() % 2 == 0 ? 1.0f : float(1 + random() % 100) / 50.0f;
    std::vector<double> x(a.size()), y(a.size()), u(a.size());
    ExpWeights(a, max, temperature, x.data());
    least_cpu::ExpWeights(a, max, temperature, y.data());
    for (size_t i = 0; i < x.size(); ++i) {
      ASSERT_EQ(std::bit_cast<uint64_t>(x[i]), std::bit_cast<uint64_t>(y[i])) << "seed " << seed;
    }
    ASSERT_EQ(ExpSum(a, max), least_cpu::ExpSum(a, max)) << "seed " << seed;
    for (double& v : u) v = (double(random()) + 0.5) * 0x1p-32;
    for (double best : {1e-9, 1e-3, 1.0}) {
      ASSERT_EQ(AnyMayWin(a, max, temperature, u.data(), best),
                least_cpu::AnyMayWin(a, max, temperature, u.data(), best));
    }
  }
}

TEST(SamplerLoops, CleanAndMaxIsThePlainLoop) {
  for (int seed = 0; seed < 500; ++seed) {
    std::mt19937 random(seed);
    std::vector<float> row = RandomRow(random, RandomSize(random)), clean = row;
    for (float& x : clean) x = std::isnan(x) ? -kInf : x;
    const float max = clean.empty() ? -kInf : *std::max_element(clean.begin(), clean.end());
    std::vector<float> maxima(size_t(kernels::NumLogitBlocks(int64_t(row.size()))));
    ASSERT_EQ(CleanAndMax(row, maxima), max) << "seed " << seed;
    ASSERT_EQ(row, clean) << "seed " << seed;
    for (size_t b = 0; b < maxima.size(); ++b) {
      const auto from = clean.begin() + std::ptrdiff_t(b * kernels::kLogitBlock);
      const auto to = clean.begin() + std::ptrdiff_t(std::min(clean.size(), (b + 1) * kernels::kLogitBlock));
      ASSERT_EQ(maxima[b], *std::max_element(from, to)) << "seed " << seed << ", block " << b;
    }
  }
}

TEST(SamplerLoops, WeightsAreOneByOne) {
  const std::vector<float> row = {1.0f, 3.0f, -kInf, 2.5f};
  std::vector<double> w(row.size());
  ExpWeights(row, 3.0f, 0.5f, w.data());
  EXPECT_EQ(w, (std::vector<double>{DetExp(-4.0), 1.0, 0.0, DetExp(-1.0)}));
  EXPECT_NEAR(ExpSum(row, 3.0f), std::exp(-2) + 1 + std::exp(-0.5), 1e-14);
  const std::vector<float> infinite = {kInf, 0.0f, kInf};
  EXPECT_EQ(ExpSum(infinite, kInf), 2.0);
}

// It may say yes in vain, never no where one can win; and mostly it says no.
TEST(SamplerLoops, AnyMayWinMissesNobody) {
  int kept = 0, total = 0;
  for (int seed = 0; seed < 20000; ++seed) {
    std::mt19937 random(seed);
    std::vector<float> row = RandomRow(random, 1 + random() % 16);
    std::vector<float> maxima(size_t(kernels::NumLogitBlocks(int64_t(row.size()))));
    const float max = CleanAndMax(row, maxima);
    if (max == -kInf) continue;
    const float temperature = random() % 8 == 0   ? 1e-45f
                              : random() % 8 == 0 ? 3e38f
                                                  : float(1 + random() % 100) / 30.0f;
    std::vector<double> w(row.size()), u(row.size());
    ExpWeights(row, max, temperature, w.data());
    const double best = std::exp(-double(random() % 30));
    bool wins = false;
    for (size_t i = 0; i < row.size(); ++i) {
      // Close to the line as often as not.
      u[i] = random() % 2 == 0 ? (double(random()) + 0.5) * 0x1p-32
                               : 1.0 - std::clamp(best * w[i] * (0.5 + double(random() % 1000) / 999.0), 0x1p-53, 0.5);
      wins |= w[i] > 0.0 && -DetLog(u[i]) / w[i] <= best;
    }
    const bool may = AnyMayWin(row, max, temperature, u.data(), best);
    ASSERT_TRUE(may || !wins) << "seed " << seed;
    kept += may && !wins;
    total += !wins;
  }
  EXPECT_LT(kept * 2, total);
}

}  // namespace
}  // namespace sluice::engine
