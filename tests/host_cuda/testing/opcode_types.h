// The types of inputs and results in the tests of opcodes: their edge values, and when two of them are the same.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "tests/host_cuda/testing/opcode_meanings.h"

namespace host_cuda::testing {

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
// Zeros of either sign are equal: directed rounding gives a sum of zeros another sign.
template <class T>
struct AnyZero {
  using type = T;
  using stored = T;
  static std::vector<T> Edges() { return FloatEdges<T>(); }
  static bool Same(T a, T b) { return a == b || (std::isnan(a) && std::isnan(b)); }
};
using T_z32 = AnyZero<f32>;
using T_z64 = AnyZero<f64>;
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
using T_b16 = T_u16;
using T_b32 = T_u32;
using T_h = SmallType<HalfReference>;
using T_w = SmallType<BrainReference>;
using T_hh = SmallPair<HalfReference>;
using T_ww = SmallPair<BrainReference>;

}  // namespace host_cuda::testing
