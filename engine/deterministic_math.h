// exp, log, sin and cos in double that give the same bits on every machine.
//
// Promise: only IEEE additions, multiplications and divisions in a fixed order (the build forbids contraction), so the
// result depends on the argument alone, not on the C library. Errors are a few units in the last place of a double,
// far below the f32 in which logits and tables are kept.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <utility>

namespace sluice::engine {

namespace math_internal {

inline constexpr double kLn2Hi = 0x1.62e42fee00000p-1;  // ln 2 = hi + lo; n * hi is exact for |n| < 2^21
inline constexpr double kLn2Lo = 0x1.a39ef35793c76p-33;
inline constexpr double kRounder = 0x1.8p52;  // x + kRounder - kRounder rounds |x| < 2^51 to an integer

inline double Round(double x) {
  return (x + kRounder) - kRounder;
}

}  // namespace math_internal

// 0 below -700 (where double precision itself begins to end), infinity above 700; NaN stays NaN. Free of branches, so
// that a loop of it becomes vector code; that changes no bit.
inline double DetExp(double x) {
  using namespace math_internal;
  double clamped = x < -700.0 ? -700.0 : x;
  clamped = clamped > 700.0 ? 700.0 : clamped;
  const double shifted = clamped * 0x1.71547652b82fep0 + kRounder;  // the low bits hold n = round(x / ln 2)
  const double n = shifted - kRounder;
  const double r = (clamped - n * kLn2Hi) - n * kLn2Lo;  // |r| <= ln 2 / 2
  double p = 1.0 / 6227020800.0;                         // Taylor up to r^13 / 13!
  p = p * r + 1.0 / 479001600.0;
  p = p * r + 1.0 / 39916800.0;
  p = p * r + 1.0 / 3628800.0;
  p = p * r + 1.0 / 362880.0;
  p = p * r + 1.0 / 40320.0;
  p = p * r + 1.0 / 5040.0;
  p = p * r + 1.0 / 720.0;
  p = p * r + 1.0 / 120.0;
  p = p * r + 1.0 / 24.0;
  p = p * r + 1.0 / 6.0;
  p = p * r + 0.5;
  p = p * r + 1.0;
  p = p * r + 1.0;
  const double power = std::bit_cast<double>((std::bit_cast<uint64_t>(shifted) + 1023) << 52);  // 2^n
  const double value = x < -700.0 ? 0.0 : p * power;
  return x > 700.0 ? std::numeric_limits<double>::infinity() : value;
}

// REQUIRES: x is positive, normal and finite.
inline double DetLog(double x) {
  using namespace math_internal;
  const uint64_t bits = std::bit_cast<uint64_t>(x);
  int exponent = int(bits >> 52) - 1023;
  double m = std::bit_cast<double>((bits & 0x000fffffffffffffULL) | 0x3ff0000000000000ULL);  // [1, 2)
  if (m > 1.4142135623730951) {
    m *= 0.5;
    ++exponent;
  }
  // log m = 2 atanh(s) with |s| < 0.172, so that s^24 is below a double's precision.
  const double s = (m - 1.0) / (m + 1.0);
  const double z = s * s;
  double p = 1.0 / 23.0;
  for (int k = 21; k >= 3; k -= 2) p = p * z + 1.0 / k;
  const double tail = 2.0 * s * z * p;
  return exponent * kLn2Hi + (2.0 * s + (tail + exponent * kLn2Lo));
}

// {sin x, cos x}. REQUIRES: |x| < 2^20 (the reduction by pi / 2 is exact to about 1e-16 up to there).
inline std::pair<double, double> DetSinCos(double x) {
  using namespace math_internal;
  // pi / 2 in three parts of 33 bits: n * part is exact for n < 2^20.
  constexpr double kPart1 = 0x1.921fb54400000p0, kPart2 = 0x1.0b4611a600000p-34, kPart3 = 0x1.3198a2e037073p-69;
  const double n = Round(x * 0x1.45f306dc9c883p-1);
  const double r = ((x - n * kPart1) - n * kPart2) - n * kPart3;  // |r| <= pi / 4
  const double z = r * r;
  double s = 0.0, c = 0.0;  // Taylor: the first terms left out are r^19 / 19! and r^18 / 18!
  for (int k = 17; k >= 3; k -= 2) s = (1.0 + s) * (-z / double(k * (k - 1)));
  for (int k = 16; k >= 2; k -= 2) c = (1.0 + c) * (-z / double(k * (k - 1)));
  const double sine = r + r * s, cosine = 1.0 + c;
  switch (int64_t(n) & 3) {
    case 0:
      return {sine, cosine};
    case 1:
      return {cosine, -sine};
    case 2:
      return {-sine, -cosine};
    default:
      return {-cosine, sine};
  }
}

}  // namespace sluice::engine
