// add, sub, mul, fma, mad, div, min, max and their like, on every PTX type. Approximate instructions are computed
// exactly enough (within half a unit of the last place of float, or so): a kernel must not rely on the hardware's own
// error.
#pragma once

#include <algorithm>
#include <cfenv>
#include <cmath>

#include "tests/host_cuda/ptx/types.h"

namespace host_cuda::ptx {

// The modifiers of floating-point arithmetic.
struct Float {
  Rounding rounding = Rounding::kNearest;
  bool flush = false;     // .ftz
  bool saturate = false;  // .sat
  bool relu = false;
  bool nan = false;  // .NaN of min and max
};

// Rounds its lifetime's float and double operations otherwise than to nearest.
class RoundingScope {
 public:
  explicit RoundingScope(Rounding rounding) : changes_(rounding != Rounding::kNearest) {
    constexpr int kModes[] = {FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD};
    if (changes_) std::fesetround(kModes[static_cast<int>(rounding)]);
  }
  ~RoundingScope() {
    if (changes_) std::fesetround(FE_TONEAREST);
  }
  RoundingScope(const RoundingScope&) = delete;
  RoundingScope& operator=(const RoundingScope&) = delete;

 private:
  const bool changes_;
};

template <class T>
inline T Flush(T value) {
  return std::fpclassify(value) == FP_SUBNORMAL ? std::copysign(T{0}, value) : value;
}

template <class T>
inline T Finish(T value, Float mode) {
  if (mode.flush) value = Flush(value);
  if (mode.saturate) value = value > 0 ? std::min(value, T{1}) : T{0};  // NaN gives 0
  if (mode.relu && !std::isnan(value)) value = value > 0 ? value : T{0};
  return value;
}

// One operation on float or double in the given mode.
template <class T, class Operation, class... Operands>
inline T Rounded(Float mode, Operation operation, Operands... operands) {
  if (mode.rounding == Rounding::kNearest && !mode.flush) return Finish(operation(operands...), mode);
  volatile T in[] = {(mode.flush ? Flush(operands) : operands)...};
  volatile T out;
  {
    RoundingScope scope(mode.rounding);
    if constexpr (sizeof...(operands) == 1) {
      out = operation(in[0]);
    } else if constexpr (sizeof...(operands) == 2) {
      out = operation(in[0], in[1]);
    } else {
      out = operation(in[0], in[1], in[2]);
    }
  }
  return Finish(T{out}, mode);
}

template <class T, class Operation, class... Operands>
inline T OnHalves(Operation operation, Operands... operands) {
  using Half = typename T::Half;
  const uint32_t low = operation(Half{static_cast<uint16_t>(operands.bits)}...).bits;
  const uint32_t high = operation(Half{static_cast<uint16_t>(operands.bits >> 16)}...).bits;
  return T{low | high << 16};
}

// .ftz: subnormal halves are zeros.
template <class T>
inline T FlushHalf(T a, Float mode) {
  if (mode.flush && (a.bits & 0x7fff) < T::Format::kSmallestNormal) a.bits &= 0x8000;
  return a;
}
template <class T>
inline float Input(T a, Float mode) {
  return ToFloat(FlushHalf(a, mode));
}

template <class T>
inline T FromDouble(double value, Float mode) {
  if (mode.saturate) value = value > 0 ? std::min(value, 1.0) : 0.0;
  if (mode.relu && !std::isnan(value)) value = value > 0 ? value : 0.0;  // -0 gives 0
  return FlushHalf(T{static_cast<uint16_t>(T::Format::Encode(value, mode.rounding))}, mode);
}

template <class T>
inline T Fma(T a, T b, T c, Float mode = {}) {
  if constexpr (kIsPair<T>) {
    using Half = typename T::Half;
    return OnHalves<T>([&](Half x, Half y, Half z) { return Fma(x, y, z, mode); }, a, b, c);
  } else if constexpr (kIsHalf<T>) {
    return FromDouble<T>(MultiplyAddToOdd(Input(a, mode), Input(b, mode), Input(c, mode)), mode);
  } else {
    return Rounded<T>(
        mode, [](T x, T y, T z) { return std::fma(x, y, z); }, a, b, c);
  }
}

#define HOST_CUDA_BINARY(Name, op)                                                  \
  template <class T>                                                                \
  inline T Name(T a, T b, Float mode = {}) {                                        \
    if constexpr (kIsPair<T>) {                                                     \
      using Half = typename T::Half;                                                \
      return OnHalves<T>([&](Half x, Half y) { return Name(x, y, mode); }, a, b);   \
    } else if constexpr (kIsHalf<T>) {                                              \
      return FromDouble<T>(double{Input(a, mode)} op double{Input(b, mode)}, mode); \
    } else if constexpr (std::is_floating_point_v<T>) {                             \
      return Rounded<T>(                                                            \
          mode, [](T x, T y) { return x op y; }, a, b);                             \
    } else {                                                                        \
      return static_cast<T>(static_cast<Bits<T>>(uint64_t(a) op uint64_t(b)));      \
    }                                                                               \
  }
HOST_CUDA_BINARY(Add, +)
HOST_CUDA_BINARY(Sub, -)
HOST_CUDA_BINARY(Mul, *)
#undef HOST_CUDA_BINARY

// add.sat and sub.sat, of .s32 alone.
inline s32 AddSaturated(s32 a, s32 b) {
  return static_cast<s32>(std::clamp<int64_t>(int64_t{a} + b, INT32_MIN, INT32_MAX));
}
inline s32 SubSaturated(s32 a, s32 b) {
  return static_cast<s32>(std::clamp<int64_t>(int64_t{a} - b, INT32_MIN, INT32_MAX));
}

template <class T>
inline T MulHi(T a, T b) {
  using Wide = std::conditional_t<std::is_signed_v<T>, s128, u128>;
  return static_cast<T>((static_cast<Wide>(a) * static_cast<Wide>(b)) >> (8 * sizeof(T)));
}
template <class Wide, class T>
inline Wide MulWide(T a, T b) {
  return static_cast<Wide>(static_cast<Wide>(a) * static_cast<Wide>(b));
}
template <class T>
inline T Mul24(T a, T b) {
  const auto low = [](T x) { return static_cast<T>(static_cast<T>(static_cast<u32>(x) << 8) >> 8); };
  return static_cast<T>(static_cast<int64_t>(low(a)) * low(b));
}
template <class T>
inline T Mul24Hi(T a, T b) {
  const auto low = [](T x) { return static_cast<T>(static_cast<T>(static_cast<u32>(x) << 8) >> 8); };
  return static_cast<T>((static_cast<int64_t>(low(a)) * low(b)) >> 16);
}

// Division by zero is undefined on the device; here it gives all ones, as the hardware's usual answer.
template <class T>
inline T Div(T a, T b, Float mode = {}) {
  if constexpr (std::is_floating_point_v<T>) {
    return Rounded<T>(
        mode, [](T x, T y) { return x / y; }, a, b);
  } else {
    if (b == 0) return static_cast<T>(-1);
    if (std::is_signed_v<T> && b == static_cast<T>(-1)) return static_cast<T>(0 - static_cast<Bits<T>>(a));
    return static_cast<T>(a / b);
  }
}
template <class T>
inline T Rem(T a, T b) {
  if (b == 0) return a;
  if (std::is_signed_v<T> && b == static_cast<T>(-1)) return 0;
  return static_cast<T>(a % b);
}

template <class T>
inline T Neg(T a, Float mode = {}) {
  if constexpr (kIsPair<T>) {
    using Half = typename T::Half;
    return OnHalves<T>([&](Half x) { return Neg(x, mode); }, a);
  } else if constexpr (kIsHalf<T>) {
    return T{static_cast<uint16_t>(FlushHalf(a, mode).bits ^ 0x8000)};
  } else if constexpr (std::is_floating_point_v<T>) {
    return -(mode.flush ? Flush(a) : a);
  } else {
    return static_cast<T>(0 - static_cast<Bits<T>>(a));
  }
}
template <class T>
inline T Abs(T a, Float mode = {}) {
  if constexpr (kIsPair<T>) {
    using Half = typename T::Half;
    return OnHalves<T>([&](Half x) { return Abs(x, mode); }, a);
  } else if constexpr (kIsHalf<T>) {
    return T{static_cast<uint16_t>(FlushHalf(a, mode).bits & 0x7fff)};
  } else if constexpr (std::is_floating_point_v<T>) {
    return std::fabs(mode.flush ? Flush(a) : a);
  } else {
    return a < 0 ? Neg(a) : a;
  }
}

// min and max: a NaN loses, unless .NaN asks for it; -0 < +0.
template <bool kMax, class T>
inline T Extreme(T a, T b, Float mode = {}) {
  if constexpr (kIsPair<T>) {
    using Half = typename T::Half;
    return OnHalves<T>([&](Half x, Half y) { return Extreme<kMax>(x, y, mode); }, a, b);
  } else if constexpr (kIsHalf<T>) {
    a = FlushHalf(a, mode), b = FlushHalf(b, mode);
    const float x = ToFloat(a), y = ToFloat(b);
    if (std::isnan(x) || std::isnan(y)) {
      if (mode.nan || (std::isnan(x) && std::isnan(y))) return T{0x7fff};
      return std::isnan(x) ? b : a;
    }
    if (x == y) return std::signbit(x) == kMax ? b : a;
    return (x > y) == kMax ? a : b;
  } else if constexpr (std::is_floating_point_v<T>) {
    if (mode.flush) a = Flush(a), b = Flush(b);
    if (std::isnan(a) || std::isnan(b)) {
      if (mode.nan || (std::isnan(a) && std::isnan(b)))
        return As<T>(static_cast<Bits<T>>(static_cast<Bits<T>>(-1) >> 1));
      return std::isnan(a) ? b : a;
    }
    if (a == b) return std::signbit(a) == kMax ? b : a;
    return (a > b) == kMax ? a : b;
  } else {
    return kMax ? std::max(a, b) : std::min(a, b);
  }
}
template <class T>
inline T Min(T a, T b, Float mode = {}) {
  return Extreme<false>(a, b, mode);
}
template <class T>
inline T Max(T a, T b, Float mode = {}) {
  return Extreme<true>(a, b, mode);
}

template <class T>
inline T Sqrt(T a, Float mode = {}) {
  return Rounded<T>(
      mode, [](T x) { return std::sqrt(x); }, a);
}
template <class T>
inline T Reciprocal(T a, Float mode = {}) {
  return Rounded<T>(
      mode, [](T x) { return T{1} / x; }, a);
}
template <class T>
inline T ReciprocalSqrt(T a, Float mode = {}) {
  return Rounded<T>(
      mode, [](T x) { return static_cast<T>(1 / std::sqrt(double{x})); }, a);
}
// ex2, lg2, sin, cos and tanh: `function` works on float.
template <class T, class Function>
inline T Approximate(T a, Function function, Float mode = {}) {
  if constexpr (kIsPair<T>) {
    using Half = typename T::Half;
    return OnHalves<T>([&](Half x) { return Approximate(x, function, mode); }, a);
  } else if constexpr (kIsHalf<T>) {
    return FromDouble<T>(function(Input(a, mode)), mode);
  } else {
    return Rounded<T>(mode, function, a);
  }
}
inline float Exp2(float x) {
  return std::exp2(x);
}
inline float Log2(float x) {
  return std::log2(x);
}
inline float Sine(float x) {
  return std::sin(x);
}
inline float Cosine(float x) {
  return std::cos(x);
}
inline float Tanh(float x) {
  return std::tanh(x);
}

template <class T>
inline T CopySign(T sign_of, T value) {
  return std::copysign(value, sign_of);
}

// The comparisons of setp and set. Ordered ones are false with a NaN, the ..u ones true.
enum class Compare { kEq, kNe, kLt, kLe, kGt, kGe, kEqu, kNeu, kLtu, kLeu, kGtu, kGeu, kNum, kNan };
template <Compare kCompare, class T>
inline bool CompareValues(T a, T b, bool flush = false) {
  if constexpr (kIsHalf<T>) {
    const Float mode{.flush = flush};
    return CompareValues<kCompare>(Input(a, mode), Input(b, mode));
  } else {
    bool unordered = false;
    if constexpr (std::is_floating_point_v<T>) {
      if (flush) a = Flush(a), b = Flush(b);
      unordered = std::isnan(a) || std::isnan(b);
    }
    switch (kCompare) {
      case Compare::kEq:
        return !unordered && a == b;
      case Compare::kNe:
        return !unordered && a != b;
      case Compare::kLt:
        return !unordered && a < b;
      case Compare::kLe:
        return !unordered && a <= b;
      case Compare::kGt:
        return !unordered && a > b;
      case Compare::kGe:
        return !unordered && a >= b;
      case Compare::kEqu:
        return unordered || a == b;
      case Compare::kNeu:
        return unordered || a != b;
      case Compare::kLtu:
        return unordered || a < b;
      case Compare::kLeu:
        return unordered || a <= b;
      case Compare::kGtu:
        return unordered || a > b;
      case Compare::kGeu:
        return unordered || a >= b;
      case Compare::kNum:
        return !unordered;
      case Compare::kNan:
        return unordered;
    }
  }
}

}  // namespace host_cuda::ptx
