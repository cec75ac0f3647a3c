// exp, log, sin and cos in double that give the same bits on every machine.
//
// Promise: only IEEE additions, multiplications and divisions in a fixed order (the build forbids contraction), so the
// result depends on the argument alone, not on the C library. Errors are a few units in the last place of a double,
// far below the f32 in which logits and tables are kept.
#pragma once

#include <cstdint>
#include <utility>

#include "kernels/deterministic_math.h"

namespace sluice::engine {

using kernels::DetExp;
using kernels::DetLog;

// {sin x, cos x}. REQUIRES: |x| < 2^20 (the reduction by pi / 2 is exact to about 1e-16 up to there).
inline std::pair<double, double> DetSinCos(double x) {
  using kernels::math_internal::kRounder;
  // pi / 2 in three parts of 33 bits: n * part is exact for n < 2^20.
  constexpr double kPart1 = 0x1.921fb54400000p0, kPart2 = 0x1.0b4611a600000p-34, kPart3 = 0x1.3198a2e037073p-69;
  const double n = (x * 0x1.45f306dc9c883p-1 + kRounder) - kRounder;
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
