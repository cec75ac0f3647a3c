// What the meanings of opcodes are written in: bits one by one, 128-bit integers and floats, and small floats found by
// searching all their values for the nearest one. A second writing of ../ptx, with which it shares nothing, on purpose.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

namespace host_cuda::testing {

using u8 = uint8_t;
using u16 = uint16_t;
using u32 = uint32_t;
using u64 = uint64_t;
using s8 = int8_t;
using s16 = int16_t;
using s32 = int32_t;
using s64 = int64_t;
using f32 = float;
using f64 = double;
__extension__ using Int128 = __int128;
__extension__ using UInt128 = unsigned __int128;

template <class T>
T Wrap(u64 value) {
  return static_cast<T>(value);
}
template <class T>
T Clamp(Int128 value) {
  const Int128 low = std::numeric_limits<T>::min(), high = std::numeric_limits<T>::max();
  return static_cast<T>(value < low ? low : value > high ? high : value);
}
template <class T>
T ToInteger(f64 value) {
  if (std::isnan(value)) return 0;
  if (std::fabs(value) > 1e30) return value > 0 ? std::numeric_limits<T>::max() : std::numeric_limits<T>::min();
  return Clamp<T>(static_cast<Int128>(value));
}
template <class T>
T Ftz(T value) {
  return value != 0 && std::fabs(value) < std::numeric_limits<T>::min() ? std::copysign(T(0), value) : value;
}

inline bool Bit(u64 value, int i) {
  return i >= 0 && i < 64 && (value >> i & 1) != 0;
}
template <class F>
u64 BuildBits(int n, F bit) {
  u64 result = 0;
  for (int i = 0; i < n; ++i) result |= u64{bit(i) ? 1u : 0u} << i;
  return result;
}
template <class F>
u32 CountIf(u64 value, int n, F test) {
  u32 count = 0;
  for (int i = 0; i < n; ++i) count += test(i, Bit(value, i)) ? 1 : 0;
  return count;
}
inline int HighestBit(u64 value) {
  for (int i = 63; i >= 0; --i) {
    if (Bit(value, i)) return i;
  }
  return -1;
}

// Directed rounding. `above`: the sign of the nearest value less the exact one. 'z' zero, 'm' down, 'p' up.
template <class T>
T Toward(char mode, T nearest, int above) {
  if (std::isnan(nearest) || above == 0) return nearest;
  if (mode == 'z' && nearest != 0 && (nearest > 0) == (above > 0)) return std::nextafter(nearest, T(0));
  if (mode == 'm' && above > 0) return std::nextafter(nearest, T(-INFINITY));
  if (mode == 'p' && above < 0) return std::nextafter(nearest, T(INFINITY));
  return nearest;
}
inline int SignOf(__float128 x) {
  return x > 0 ? 1 : x < 0 ? -1 : 0;
}
// Of x - (p + c), exactly: the sum in 113 bits and what it lost.
inline int AboveExactSum(__float128 x, __float128 p, __float128 c) {
  const __float128 sum = p + c;
  if (sum - sum != 0) return 0;  // infinite: so is the nearest value
  if (x != sum) return SignOf(x - sum);
  const __float128 from_c = sum - p;
  return -SignOf((p - (sum - from_c)) + (c - from_c));
}
inline int AboveValue(f64 x, __float128 exact) {
  return exact - exact != 0 ? 0 : SignOf(x - exact);
}
inline int AboveSum(f64 x, f64 a, f64 b) {
  return AboveExactSum(x, a, b);
}
inline int AboveDifference(f64 x, f64 a, f64 b) {
  return AboveExactSum(x, a, -b);
}
inline int AboveFma(f64 x, f64 a, f64 b, f64 c) {
  return AboveExactSum(x, __float128(a) * b, c);
}
inline int AboveProduct(f64 x, f64 a, f64 b) {
  return AboveFma(x, a, b, 0);
}
// x - a / b has the sign of (x b - a) b.
inline int AboveQuotient(f64 x, f64 a, f64 b) {
  if (!std::isfinite(a) || !std::isfinite(b) || b == 0) return 0;
  if (std::isinf(x)) return x > 0 ? 1 : -1;
  return AboveExactSum(0, -(__float128(x) * b), a) * (b > 0 ? 1 : -1);
}
inline int AboveReciprocal(f64 x, f64 a) {
  return AboveQuotient(x, 1, a);
}
inline int AboveRoot(f64 x, f64 a) {
  return std::isfinite(a) && a > 0 ? AboveExactSum(0, -(__float128(x) * x), a) : 0;
}
template <class T>
T Sat(T value) {
  return value > 0 ? std::fmin(value, T(1)) : T(0);
}
template <class T>
T FromBits(u64 bits) {
  T value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
inline f32 Smaller(f32 a, f32 b) {
  return std::isnan(a) ? b : std::isnan(b) ? a : a == b ? (std::signbit(a) ? a : b) : a < b ? a : b;
}
inline f64 Smaller(f64 a, f64 b) {
  return std::isnan(a) ? b : std::isnan(b) ? a : a == b ? (std::signbit(a) ? a : b) : a < b ? a : b;
}

// A small float by its rule: sign, exponent, mantissa.
template <int kExponent, int kMantissa, bool kInfinity>
struct Reference {
  static f64 Value(u32 bits) {
    const int exponent = static_cast<int>(bits >> kMantissa) & ((1 << kExponent) - 1);
    const int mantissa = static_cast<int>(bits) & ((1 << kMantissa) - 1), bias = (1 << (kExponent - 1)) - 1;
    const f64 sign = (bits >> (kExponent + kMantissa) & 1) != 0 ? -1 : 1;
    const bool top = exponent == (1 << kExponent) - 1;
    if (kInfinity && top) return mantissa == 0 ? sign * INFINITY : NAN;
    if (!kInfinity && top && mantissa == (1 << kMantissa) - 1) return NAN;
    if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - kMantissa);
    return sign * std::ldexp((1 << kMantissa) + mantissa, exponent - bias - kMantissa);
  }
  // The nearest to value + rest, where rest is less than half a unit of value's last place, by search; ties to even;
  // past the largest by half a step: infinity, or the largest if it saturates.
  static u32 Nearest(__float128 value, bool saturate, char mode = 'n', __float128 rest = 0) {
    const u32 sign = 1u << (kExponent + kMantissa);
    if (value != value) return sign - 1;
    const bool negative = value < 0 || (value == 0 && std::signbit(static_cast<f64>(value)));
    if (negative) value = -value, rest = -rest;
    const u32 infinity = kInfinity ? ((1u << kExponent) - 1) << kMantissa : sign - 1;
    u32 low = 0, high = infinity;  // the last not above, the first above
    while (high - low > 1) {
      const u32 middle = (low + high) / 2;
      (Value(middle) <= value ? low : high) = middle;
    }
    const __float128 below = Value(low);
    const __float128 step = high == infinity ? below - __float128(Value(low - 1)) : __float128(Value(high)) - below;
    const __float128 over = value - below;
    u32 result = low;
    if (mode == 'n' && (over > step / 2 || (over == step / 2 && (rest > 0 || (rest == 0 && (low & 1) != 0)))))
      result = high;
    if (value > __float128(1e300) * 1e300) result = infinity;
    if (result == infinity && saturate) result = infinity - 1;
    return (negative ? sign : 0) | result;
  }
  // Towards zero ('z'), down ('m'), up ('p') or to the nearest ('n').
  static u32 Rounded(char mode, __float128 value) {
    if (mode == 'n' || value != value || value - value != 0) return Nearest(value, false);
    const u32 sign = 1u << (kExponent + kMantissa);
    u32 below = Nearest(value, true, 'z');  // in magnitude; the largest, where there is nothing above it
    const bool away = (mode == 'p' && value > 0) || (mode == 'm' && value < 0);
    if (away && __float128(Value(below)) != value) ++below;
    if (value == 0) below &= sign;
    return below;
  }
};
using HalfReference = Reference<5, 10, true>;
using BrainReference = Reference<8, 7, true>;
inline f64 HValue(u32 bits) {
  return HalfReference::Value(bits);
}
inline f64 WValue(u32 bits) {
  return BrainReference::Value(bits);
}
inline u16 HNearest(__float128 value) {
  return static_cast<u16>(HalfReference::Nearest(value, false));
}
inline u16 WNearest(__float128 value) {
  return static_cast<u16>(BrainReference::Nearest(value, false));
}
// The exact product plus c: a sum of 113 bits and what it lost.
template <class R>
u16 NearestFma(f64 a, f64 b, f64 c) {
  const __float128 product = __float128(a) * b, sum = product + c;
  if (sum - sum != 0) return static_cast<u16>(R::Nearest(sum, false));
  const __float128 from_c = sum - product;
  return static_cast<u16>(R::Nearest(sum, false, 'n', (product - (sum - from_c)) + (c - from_c)));
}
inline u16 HFma(f64 a, f64 b, f64 c) {
  return NearestFma<HalfReference>(a, b, c);
}
inline u16 WFma(f64 a, f64 b, f64 c) {
  return NearestFma<BrainReference>(a, b, c);
}
inline u16 WFtz(u16 bits) {
  return (bits & 0x7f80) == 0 ? bits & 0x8000 : bits;
}
inline u16 HFtz(u16 bits) {
  return (bits & 0x7c00) == 0 ? bits & 0x8000 : bits;
}
inline u16 HSat(u16 bits) {
  return HValue(bits) > 0 ? std::min<u16>(bits, 0x3c00) : 0;
}
inline u16 HRounded(char mode, __float128 value) {
  return static_cast<u16>(HalfReference::Rounded(mode, value));
}
inline u16 WRounded(char mode, __float128 value) {
  return static_cast<u16>(BrainReference::Rounded(mode, value));
}
inline u32 E4m3Nearest(f32 value) {
  return Reference<4, 3, false>::Nearest(value, true);
}
inline u32 E5m2Nearest(f32 value) {
  return Reference<5, 2, true>::Nearest(value, true);
}
inline f64 E4m3Value(u32 bits) {
  return Reference<4, 3, false>::Value(bits);
}
inline f64 E5m2Value(u32 bits) {
  return Reference<5, 2, true>::Value(bits);
}
// Negative values and -0 give 0; NaN stays.
inline u16 Relu(u16 bits) {
  return (bits & 0x8000) != 0 && bits != 0xffff ? 0 : bits;
}
inline u16 HalfMin(f64 x, f64 y, u16 a, u16 b) {
  if (std::isnan(x)) return std::isnan(y) ? 0x7fff : b;
  if (std::isnan(y)) return a;
  if (x == y) return std::signbit(x) ? a : b;
  return x < y ? a : b;
}
// f on the halves of three pairs.
template <class F>
u32 Halves(F f, u32 a, u32 b, u32 c) {
  const auto at = [=](int by) {
    return u32{f(static_cast<u16>(a >> by), static_cast<u16>(b >> by), static_cast<u16>(c >> by))} << by;
  };
  return at(0) | at(16);
}
inline u32 Tf32Away(f32 value) {
  if (std::isnan(value)) return 0x7fffffff;
  if (std::isinf(value)) return value > 0 ? 0x7f800000u : 0xff800000u;
  const int exponent = std::max(-126, value == 0 ? -126 : std::ilogb(value));
  const f64 quantum = std::ldexp(1.0, exponent - 10), rounded = std::round(f64{value} / quantum) * quantum;
  const f32 result = static_cast<f32>(std::copysign(rounded, f64{value}));
  u32 bits;
  std::memcpy(&bits, &result, 4);
  return bits;
}

}  // namespace host_cuda::testing
