#include "engine/model/rope_table.h"

#include <cmath>
#include <vector>

#include "gtest/gtest.h"

namespace sluice::engine {
namespace {

void ExpectTable(int positions, int dim, double theta, const std::vector<float>& factors) {
  const std::vector<float> table = MakeRopeTable(positions, dim, theta, factors);
  ASSERT_EQ(table.size(), size_t(positions) * dim);
  for (int p = 0; p < positions; ++p) {
    for (int i = 0; i < dim / 2; ++i) {
      double angle = p * std::pow(theta, -2.0 * i / dim);
      if (!factors.empty()) angle /= factors[i];
      // Rounded once to f32: half an ulp of a value below 1, and what position * error of the frequency adds.
      ASSERT_NEAR(table[size_t(p) * dim + i], std::cos(angle), 3.1e-8) << p << " " << i;
      ASSERT_NEAR(table[size_t(p) * dim + dim / 2 + i], std::sin(angle), 3.1e-8) << p << " " << i;
    }
  }
}

TEST(RopeTable, HoldsCosinesThenSines) {
  ExpectTable(8192, 64, 100000.0, {});
  ExpectTable(100, 2, 10000.0, {});
  ExpectTable(131, 80, 500000.0, {});
}

TEST(RopeTable, FactorsDivideTheFrequencies) {
  ExpectTable(500, 8, 10000.0, {1.0f, 2.0f, 8.0f, 32.0f});
}

}  // namespace
}  // namespace sluice::engine
