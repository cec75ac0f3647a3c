// Runs a translated snippet over every combination of edge values and compares with its meaning in plain C++; the small
// floats' references search all their values for the nearest one, and share nothing with ../ptx.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "tests/host_cuda/engine/grid.h"

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
using Int128 = __int128;

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
inline f32 Ftz(f32 value) {
  return value != 0 && std::fabs(value) < std::numeric_limits<f32>::min() ? std::copysign(0.0f, value) : value;
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

// The rounded result corrected by at most one step towards where it should have gone. 'z' zero, 'm' down, 'p' up.
template <class T>
T Directed(char mode, __float128 exact, T nearest) {
  if (std::isnan(nearest) || exact == 0 || exact - exact != 0) return nearest;
  const bool down = mode == 'm' || (mode == 'z' && exact > 0);
  if (down && nearest > exact) return std::nextafter(nearest, -INFINITY);
  if (!down && nearest < exact) return std::nextafter(nearest, INFINITY);
  return nearest;
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
inline u16 HToward(char mode, __float128 value) {
  return static_cast<u16>(HalfReference::Nearest(value, std::isfinite(static_cast<f64>(value)), mode));
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
template <class F>
u32 Pair(F f, u32 a, u32 b) {
  return u32{f(static_cast<u16>(a >> 16), static_cast<u16>(b >> 16))} << 16 |
         f(static_cast<u16>(a), static_cast<u16>(b));
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

// Edge values of each type.
template <class T>
std::vector<T> IntegerEdges() {
  constexpr T kMin = std::numeric_limits<T>::min(), kMax = std::numeric_limits<T>::max();
  return {0,
          1,
          2,
          3,
          7,
          31,
          static_cast<T>(32),
          static_cast<T>(100),
          static_cast<T>(-1),
          static_cast<T>(-2),
          kMin,
          kMax,
          static_cast<T>(kMax - 1),
          static_cast<T>(kMax / 2 + 1),
          static_cast<T>(0x123456789abcdef0ull),
          static_cast<T>(0xa5a5a5a5a5a5a5a5ull),
          static_cast<T>(0xfedcba9876543210ull),
          static_cast<T>((1ull << 53) + 1)};
}
template <class T>
std::vector<T> FloatEdges() {
  using Limits = std::numeric_limits<T>;
  return {T(0),
          T(-0.0),
          T(1),
          T(-1),
          T(0.5),
          T(1.5),
          T(2.5),
          T(-2.5),
          T(3),
          T(0.1),
          T(-0.3),
          T(1e10),
          T(-1e10),
          T(65504),
          T(65520),
          T(448),
          T(465),
          T(1e-7),
          T(6e-8),
          T(1e-39),
          Limits::min(),
          Limits::denorm_min(),
          -Limits::denorm_min(),
          Limits::max(),
          Limits::lowest(),
          Limits::infinity(),
          -Limits::infinity(),
          Limits::quiet_NaN(),
          T(127.5),
          T(2147483647.0),
          T(4294967296.0),
          T(1) + Limits::epsilon(),
          T(1.00390625),
          T(1.00048828125)};
}
inline std::vector<u16> HalfEdges() {
  return {0,      0x8000, 1,      0x8001, 0x3ff,  0x400,  0x3c00, 0xbc00, 0x3c01, 0x3f80, 0xbf80, 0x3f81, 0x4049,
          0xc2f7, 0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7e00, 0x7f80, 0xff80, 0x7fc0, 0x0080, 0x5640, 0x1234};
}
inline std::vector<u32> PairEdges() {
  const std::vector<u16> halves = HalfEdges();
  std::vector<u32> pairs;
  for (size_t i = 0; i < halves.size(); ++i)
    pairs.push_back(u32{halves[i]} << 16 | halves[(i * 7 + 3) % halves.size()]);
  return pairs;
}

struct SameBits {
  template <class T>
  static bool Same(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) {
      if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
    }
    return std::memcmp(&a, &b, sizeof a) == 0;
  }
};
#define HOST_CUDA_TEST_TYPE(name, cpp, edges)         \
  struct T_##name : SameBits {                        \
    using type = cpp;                                 \
    using stored = cpp;                               \
    static std::vector<cpp> Edges() { return edges; } \
  }
HOST_CUDA_TEST_TYPE(u8, u8, IntegerEdges<u8>());
HOST_CUDA_TEST_TYPE(s8, s8, IntegerEdges<s8>());
HOST_CUDA_TEST_TYPE(u16, u16, IntegerEdges<u16>());
HOST_CUDA_TEST_TYPE(s16, s16, IntegerEdges<s16>());
HOST_CUDA_TEST_TYPE(u32, u32, IntegerEdges<u32>());
HOST_CUDA_TEST_TYPE(s32, s32, IntegerEdges<s32>());
HOST_CUDA_TEST_TYPE(u64, u64, IntegerEdges<u64>());
HOST_CUDA_TEST_TYPE(s64, s64, IntegerEdges<s64>());
HOST_CUDA_TEST_TYPE(f32, f32, FloatEdges<f32>());
HOST_CUDA_TEST_TYPE(f64, f64, FloatEdges<f64>());
#undef HOST_CUDA_TEST_TYPE
// Floats whose sums and products have less than 113 bits; zeros of either sign are equal.
struct T_m32 {
  using type = f32;
  using stored = f32;
  static std::vector<f32> Edges() {
    std::vector<f32> edges;
    for (const f32 x : FloatEdges<f32>()) {
      if (!(std::fabs(x) < 1e-8 && x != 0) && !(std::fabs(x) > 1e11 && std::isfinite(x))) edges.push_back(x);
    }
    return edges;
  }
  static bool Same(f32 a, f32 b) { return a == b || (std::isnan(a) && std::isnan(b)); }
};
struct T_pred : SameBits {
  using type = bool;
  using stored = u32;
  static std::vector<u8> Edges() { return {0, 1}; }
};
template <class R>
struct SmallType {
  using type = u16;
  using stored = u16;
  static std::vector<u16> Edges() { return HalfEdges(); }
  static bool Same(u16 a, u16 b) { return (std::isnan(R::Value(a)) && std::isnan(R::Value(b))) || a == b; }
};
template <class R>
struct SmallPair {
  using type = u32;
  using stored = u32;
  static std::vector<u32> Edges() { return PairEdges(); }
  static bool Same(u32 a, u32 b) {
    return SmallType<R>::Same(static_cast<u16>(a), static_cast<u16>(b)) &&
           SmallType<R>::Same(static_cast<u16>(a >> 16), static_cast<u16>(b >> 16));
  }
};
using T_h = SmallType<HalfReference>;
using T_w = SmallType<BrainReference>;
using T_hh = SmallPair<HalfReference>;
using T_ww = SmallPair<BrainReference>;

struct CaseParams {
  const void* input[3];
  void* out;
  u32 n;
};

template <class Result, class... Inputs>
void Check(const char* kernel_name, const char* ptx, typename Result::type (*meaning)(typename Inputs::type...)) {
  constexpr size_t kInputs = sizeof...(Inputs);
  auto edges = std::make_tuple(Inputs::Edges()...);
  size_t n = 1;
  std::apply([&](const auto&... e) { ((n *= e.size()), ...); }, edges);
  // Every combination, one input after the other.
  size_t repeat = 1;
  auto expand = [&](const auto& values) {
    auto all = values;
    all.resize(n);
    for (size_t i = 0; i < n; ++i) all[i] = values[i / repeat % values.size()];
    repeat *= values.size();
    return all;
  };
  auto inputs = std::apply([&](const auto&... e) { return std::tuple{expand(e)...}; }, edges);
  std::vector<typename Result::stored> out(n);
  CaseParams params{};
  size_t at = 0;
  std::apply([&](const auto&... in) { ((params.input[at++] = in.data()), ...); }, inputs);
  static_assert(kInputs >= 1 && kInputs <= 3);
  params.out = out.data();
  params.n = static_cast<u32>(n);
  const Kernel* kernel = FindKernel(kernel_name);
  ASSERT_NE(kernel, nullptr);
  ASSERT_EQ(RunGrid(*kernel, Launch{{static_cast<u32>((n + 127) / 128), 1, 1}, {128, 1, 1}, 0},
                    reinterpret_cast<const unsigned char*>(&params)),
            "");
  for (size_t i = 0; i < n; ++i) {
    const auto expected = std::apply([&](const auto&... in) { return meaning(in[i]...); }, inputs);
    const auto got = static_cast<typename Result::type>(out[i]);
    if (Result::Same(got, expected)) continue;
    std::string arguments;
    std::apply([&](const auto&... in) { ((arguments += ::testing::PrintToString(in[i]) + " "), ...); }, inputs);
    FAIL() << ptx << " of " << arguments << "gives " << ::testing::PrintToString(got) << ", not "
           << ::testing::PrintToString(expected);
  }
}

}  // namespace host_cuda::testing
