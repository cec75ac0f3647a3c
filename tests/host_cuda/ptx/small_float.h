// Floating-point types of a GPU that C++ lacks: decoding is exact, encoding rounds once.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace host_cuda::ptx {

enum class Rounding { kNearest, kZero, kDown, kUp };

// kExponent and kMantissa bits below a sign; kInfinity: has infinities (otherwise, as e4m3, only the all-ones pattern
// is NaN).
template <int kExponent, int kMantissa, bool kInfinity>
struct SmallFormat {
  static constexpr int kBias = (1 << (kExponent - 1)) - 1;
  static constexpr uint32_t kSign = 1u << (kExponent + kMantissa);
  static constexpr uint32_t kNan = kSign - 1;
  static constexpr uint32_t kOverflow = kInfinity ? ((1u << kExponent) - 1) << kMantissa : kNan;
  static constexpr uint32_t kLargest = kOverflow - 1;
  static constexpr uint32_t kSmallestNormal = 1u << kMantissa;

  static float Decode(uint32_t bits) {
    const uint32_t exponent = (bits & (kSign - 1)) >> kMantissa, mantissa = bits & ((1u << kMantissa) - 1);
    const uint32_t sign = (bits & kSign) != 0 ? 0x80000000u : 0;
    const bool last = exponent == (1u << kExponent) - 1;
    if (kInfinity ? last : (bits & kNan) == kNan) {
      const bool nan = !kInfinity || mantissa != 0;
      return std::bit_cast<float>(sign | 0x7f800000u | (nan ? 0x400000u | mantissa << (23 - kMantissa) : 0));
    }
    if (exponent == 0)
      return std::copysign(std::ldexp(static_cast<float>(mantissa), 1 - kBias - kMantissa),
                           std::bit_cast<float>(sign | 0x3f800000u));
    return std::bit_cast<float>(sign | (exponent + 127 - kBias) << 23 | mantissa << (23 - kMantissa));
  }

  static uint32_t Encode(double value, Rounding rounding = Rounding::kNearest, bool saturate = false) {
    const uint64_t bits = std::bit_cast<uint64_t>(value);
    const uint32_t sign = bits >> 63 != 0 ? kSign : 0;
    const int exponent = static_cast<int>(bits >> 52 & 2047);
    uint64_t mantissa = bits & ((uint64_t{1} << 52) - 1);
    if (exponent == 2047) {
      if (mantissa != 0) return kNan;
      return sign | (saturate ? kLargest : kOverflow);
    }
    if (exponent == 0) return sign | (mantissa != 0 && Away(rounding, sign != 0) ? 1 : 0);
    mantissa |= uint64_t{1} << 52;
    int field = exponent - 1023 + kBias;  // of the result, before rounding
    int shift = 52 - kMantissa;
    if (field < 1) {
      shift += 1 - field;
      field = 1;
    }
    if (shift > 63) shift = 63;  // far below the smallest: only directed rounding sees it
    uint64_t kept = mantissa >> shift;
    const uint64_t rest = mantissa & ((uint64_t{1} << shift) - 1), half = uint64_t{1} << (shift - 1);
    const bool up = rounding == Rounding::kNearest ? rest > half || (rest == half && (kept & 1) != 0)
                                                   : rest != 0 && Away(rounding, sign != 0);
    kept += up ? 1 : 0;
    // A carry out of the mantissa moves into the exponent; below 2^kMantissa it is subnormal, field 0.
    const uint64_t result = (static_cast<uint64_t>(field - 1) << kMantissa) + kept;
    if (result >= kOverflow) {
      if (saturate) return sign | kLargest;
      const bool to_infinity = rounding == Rounding::kNearest || Away(rounding, sign != 0);
      return sign | (to_infinity ? kOverflow : kLargest);
    }
    return sign | static_cast<uint32_t>(result);
  }

 private:
  static bool Away(Rounding rounding, bool negative) {
    return rounding == (negative ? Rounding::kDown : Rounding::kUp);
  }
};

using HalfFormat = SmallFormat<5, 10, true>;
using BrainFormat = SmallFormat<8, 7, true>;
using E4m3Format = SmallFormat<4, 3, false>;
using E5m2Format = SmallFormat<5, 2, true>;
using Tf32Format = SmallFormat<8, 10, true>;  // in the upper 19 bits of a float

struct f16 {
  using Format = HalfFormat;
  uint16_t bits;
};
struct bf16 {
  using Format = BrainFormat;
  uint16_t bits;
};

inline float ToFloat(f16 value) {
  return HalfFormat::Decode(value.bits);
}
inline float ToFloat(bf16 value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16);
}
inline float ToFloat(float value) {
  return value;
}
inline double ToFloat(double value) {
  return value;
}

// The exact sum of a product of small floats and a small float, rounded to double so that a second rounding, to at most
// 24 bits, is the only one that counts ("round to odd").
inline double MultiplyAddToOdd(double a, double b, double c) {
  const double product = a * b, sum = product + c;
  if (!std::isfinite(sum)) return sum;
  const double from_c = sum - product, error = (product - (sum - from_c)) + (c - from_c);
  if (error == 0 || (std::bit_cast<uint64_t>(sum) & 1) != 0) return sum;
  return std::nextafter(sum, error > 0 ? INFINITY : -INFINITY);
}

}  // namespace host_cuda::ptx
