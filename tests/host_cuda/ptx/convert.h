// cvt: between integers and floating-point types of any size.
#pragma once

#include <limits>

#include "tests/host_cuda/ptx/arithmetic.h"

namespace host_cuda::ptx {

// To the nearest value of T.
template <class T>
inline T ClampInteger(s128 value) {
  const s128 low = std::numeric_limits<T>::min(), high = std::numeric_limits<T>::max();
  return static_cast<T>(value < low ? low : value > high ? high : value);
}

inline double RoundToInteger(double value, Rounding rounding) {
  switch (rounding) {
    case Rounding::kNearest:
      return std::nearbyint(value);
    case Rounding::kZero:
      return std::trunc(value);
    case Rounding::kDown:
      return std::floor(value);
    case Rounding::kUp:
      break;
  }
  return std::ceil(value);
}

// Out of range clamps; NaN gives 0.
template <class T>
inline T IntegerOf(double value, Rounding rounding) {
  if (std::isnan(value)) return 0;
  value = RoundToInteger(value, rounding);
  if (value >= 0x1p64) return std::numeric_limits<T>::max();
  if (value <= -0x1p64) return std::numeric_limits<T>::min();
  return ClampInteger<T>(static_cast<s128>(value));
}

// `to_integer`: .rni and so on: an integral value, also of a floating-point type.
template <class To, class From>
inline To Convert(From from, Float mode = {}, bool to_integer = false) {
  constexpr bool kToFloat = std::is_floating_point_v<To> || kIsHalf<To>;
  if constexpr (std::is_integral_v<From> && std::is_integral_v<To>) {
    return mode.saturate ? ClampInteger<To>(from) : static_cast<To>(from);
  } else if constexpr (std::is_integral_v<From> && std::is_floating_point_v<To>) {
    RoundingScope scope(mode.rounding);
    volatile From in = from;
    volatile To out = static_cast<To>(in);
    return Finish(To{out}, mode);
  } else if constexpr (std::is_integral_v<From>) {
    // 64-bit integers have more bits than double: past 2^53 the last twelve are folded into one, which rounding alone
    // sees.
    From big = from;
    if (sizeof(From) == 8 &&
        (big > (From{1} << 53) || (std::is_signed_v<From> && big < -(static_cast<From>(1) << 53)))) {
      big = static_cast<From>((big & ~From{4095}) | ((big & 4095) != 0 ? 2048 : 0));
    }
    return FromDouble<To>(static_cast<double>(big), mode);
  } else if constexpr (!kToFloat) {
    double value = ToFloat(from);
    if (mode.flush && std::is_same_v<From, float>) value = Flush(static_cast<float>(value));
    return IntegerOf<To>(value, mode.rounding);
  } else {
    double value = ToFloat(from);
    if (mode.flush && std::is_same_v<From, float>) value = Flush(static_cast<float>(value));
    if (kIsHalf<To>) mode.flush = false;  // it is of floats alone
    if (to_integer) {
      value = std::copysign(RoundToInteger(value, mode.rounding), value);
      mode.rounding = Rounding::kNearest;
    }
    if constexpr (kIsHalf<To>) {
      return FromDouble<To>(value, mode);
    } else if constexpr (std::is_same_v<To, float> && std::is_same_v<From, double>) {
      RoundingScope scope(mode.rounding);
      volatile double in = value;
      volatile float out = static_cast<float>(in);
      return Finish(float{out}, mode);
    } else {
      return Finish(static_cast<To>(value), mode);
    }
  }
}

// cvt.rn.f16x2.f32 d, a, b: a in the upper half.
template <class Pair>
inline Pair ConvertPair(float high, float low, Float mode = {}) {
  using Half = typename Pair::Half;
  return Pair{static_cast<u32>(FromDouble<Half>(high, mode).bits) << 16 | FromDouble<Half>(low, mode).bits};
}

template <class Format>
inline u16 ConvertBytes(float high, float low, bool relu) {
  auto encode = [relu](float x) { return Format::Encode(relu && x <= 0 ? 0.0 : double{x}, Rounding::kNearest, true); };
  return static_cast<u16>(encode(high) << 8 | encode(low));
}
template <class Format>
inline f16x2 ConvertFromBytes(u16 bytes, bool relu) {
  auto decode = [relu](u32 byte) {
    const float x = Format::Decode(byte);
    return HalfFormat::Encode(relu && x <= 0 ? 0 : x);
  };
  return f16x2{decode(bytes >> 8) << 16 | decode(bytes & 255)};
}

// cvt.rna.tf32.f32: ties away from zero.
inline u32 ConvertTf32(float value) {
  const u32 bits = std::bit_cast<u32>(value);
  if ((bits & 0x7f800000) == 0x7f800000) return std::isnan(value) ? 0x7fffffffu : bits;
  return (bits + 0x1000) & ~0x1fffu;
}

}  // namespace host_cuda::ptx
