#include "engine/deterministic_math.h"

#include <cmath>
#include <random>

#include "gtest/gtest.h"

namespace sluice::engine {
namespace {

// The C library is the reference; it is within an ulp or two of the truth.
TEST(DeterministicMath, ExpAgreesWithTheLibrary) {
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> wide(-690, 690), narrow(-1, 1);
  for (int i = 0; i < 200000; ++i) {
    const double x = i % 2 ? wide(random) : narrow(random);
    EXPECT_NEAR(DetExp(x) / std::exp(x), 1.0, 1e-15) << x;
  }
}

TEST(DeterministicMath, ExpAtItsEnds) {
  EXPECT_EQ(DetExp(0.0), 1.0);
  EXPECT_EQ(DetExp(-0.0), 1.0);
  EXPECT_EQ(DetExp(-1e300), 0.0);
  EXPECT_EQ(DetExp(-INFINITY), 0.0);
  EXPECT_EQ(DetExp(INFINITY), INFINITY);
  EXPECT_TRUE(std::isnan(DetExp(NAN)));
  EXPECT_GT(DetExp(-699.9), 0.0);
  EXPECT_LT(DetExp(699.9), INFINITY);
}

TEST(DeterministicMath, LogAgreesWithTheLibrary) {
  std::mt19937_64 random(2);
  std::uniform_real_distribution<double> exponent(-1000, 1000), narrow(0.5, 2.0);
  for (int i = 0; i < 200000; ++i) {
    const double x = i % 2 ? std::exp2(exponent(random)) : narrow(random);
    EXPECT_NEAR(DetLog(x), std::log(x), 4e-16 * std::abs(std::log(x)) + 1e-300) << x;
  }
  EXPECT_EQ(DetLog(1.0), 0.0);
  EXPECT_NEAR(DetLog(1.0 - 0x1p-53), -0x1p-53, 0x1p-100);
}

TEST(DeterministicMath, SinCosAgreeWithTheLibrary) {
  std::mt19937_64 random(3);
  std::uniform_real_distribution<double> wide(-1048576, 1048576), narrow(-4, 4);
  for (int i = 0; i < 200000; ++i) {
    const double x = i % 2 ? wide(random) : narrow(random);
    const auto [s, c] = DetSinCos(x);
    EXPECT_NEAR(s, std::sin(x), 5e-16) << x;
    EXPECT_NEAR(c, std::cos(x), 5e-16) << x;
  }
  EXPECT_EQ(DetSinCos(0.0).first, 0.0);
  EXPECT_EQ(DetSinCos(0.0).second, 1.0);
}

}  // namespace
}  // namespace sluice::engine
