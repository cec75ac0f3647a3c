// exp and log in double that give the same bits on every machine, CPU or GPU.
//
// Promise: only IEEE additions, multiplications and divisions in a fixed order, none of them fused (on a CPU the build
// forbids contraction, on a GPU Times and Plus do), so the result depends on the argument alone, not on a library.
// Errors are a few units in the last place of a double, far below the f32 in which logits and tables are kept.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

#if defined(__CUDACC__)
#define SLUICE_HOST_DEVICE __host__ __device__
#else
#define SLUICE_HOST_DEVICE
#endif

namespace sluice::kernels {

// A product and a sum that stay two operations.
SLUICE_HOST_DEVICE inline double Times(double a, double b) {
#if defined(__CUDA_ARCH__)
  return __dmul_rn(a, b);
#else
  return a * b;
#endif
}
SLUICE_HOST_DEVICE inline double Plus(double a, double b) {
#if defined(__CUDA_ARCH__)
  return __dadd_rn(a, b);
#else
  return a + b;
#endif
}

namespace math_internal {

inline constexpr double kLn2Hi = 0x1.62e42fee00000p-1;  // ln 2 = hi + lo; n * hi is exact for |n| < 2^21
inline constexpr double kLn2Lo = 0x1.a39ef35793c76p-33;
inline constexpr double kRounder = 0x1.8p52;  // x + kRounder - kRounder rounds |x| < 2^51 to an integer

}  // namespace math_internal

// 0 below -700 (where double precision itself begins to end), infinity above 700; NaN stays NaN. Free of branches, so
// that a loop of it becomes vector code; that changes no bit.
SLUICE_HOST_DEVICE inline double DetExp(double x) {
  using math_internal::kLn2Hi;
  using math_internal::kLn2Lo;
  using math_internal::kRounder;
  double clamped = x < -700.0 ? -700.0 : x;
  clamped = clamped > 700.0 ? 700.0 : clamped;
  const double shifted = Plus(Times(clamped, 0x1.71547652b82fep0), kRounder);  // the low bits hold n = round(x / ln 2)
  const double n = shifted - kRounder;
  const double r = Plus(Plus(clamped, -Times(n, kLn2Hi)), -Times(n, kLn2Lo));  // |r| <= ln 2 / 2
  double p = 1.0 / 6227020800.0;                                               // Taylor up to r^13 / 13!
  p = Plus(Times(p, r), 1.0 / 479001600.0);
  p = Plus(Times(p, r), 1.0 / 39916800.0);
  p = Plus(Times(p, r), 1.0 / 3628800.0);
  p = Plus(Times(p, r), 1.0 / 362880.0);
  p = Plus(Times(p, r), 1.0 / 40320.0);
  p = Plus(Times(p, r), 1.0 / 5040.0);
  p = Plus(Times(p, r), 1.0 / 720.0);
  p = Plus(Times(p, r), 1.0 / 120.0);
  p = Plus(Times(p, r), 1.0 / 24.0);
  p = Plus(Times(p, r), 1.0 / 6.0);
  p = Plus(Times(p, r), 0.5);
  p = Plus(Times(p, r), 1.0);
  p = Plus(Times(p, r), 1.0);
  const double power = std::bit_cast<double>((std::bit_cast<uint64_t>(shifted) + 1023) << 52);  // 2^n
  const double value = x < -700.0 ? 0.0 : Times(p, power);
  return x > 700.0 ? std::numeric_limits<double>::infinity() : value;
}

// REQUIRES: x is positive, normal and finite.
SLUICE_HOST_DEVICE inline double DetLog(double x) {
  using math_internal::kLn2Hi;
  using math_internal::kLn2Lo;
  const uint64_t bits = std::bit_cast<uint64_t>(x);
  int exponent = int(bits >> 52) - 1023;
  double m = std::bit_cast<double>((bits & 0x000fffffffffffffULL) | 0x3ff0000000000000ULL);  // [1, 2)
  if (m > 1.4142135623730951) {
    m *= 0.5;
    ++exponent;
  }
  // log m = 2 atanh(s) with |s| < 0.172, so that s^24 is below a double's precision.
  const double s = (m - 1.0) / (m + 1.0);
  const double z = Times(s, s);
  double p = 1.0 / 23.0;
  for (int k = 21; k >= 3; k -= 2) p = Plus(Times(p, z), 1.0 / k);
  const double tail = Times(Times(Times(2.0, s), z), p);
  return Plus(Times(exponent, kLn2Hi), Plus(Times(2.0, s), Plus(tail, Times(exponent, kLn2Lo))));
}

}  // namespace sluice::kernels
