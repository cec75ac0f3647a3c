// PTX types as the translated code names them. A register holds raw bits, as in PTX: As reads a type out of it, Put
// writes one.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "tests/host_cuda/engine/diagnose.h"
#include "tests/host_cuda/ptx/small_float.h"

namespace host_cuda::ptx {

using u8 = uint8_t;
using u16 = uint16_t;
using u32 = uint32_t;
using u64 = uint64_t;
using s8 = int8_t;
using s16 = int16_t;
using s32 = int32_t;
using s64 = int64_t;
__extension__ using s128 = __int128;
__extension__ using u128 = unsigned __int128;
using f32 = float;
using f64 = double;
struct f16x2 {
  using Half = f16;
  uint32_t bits;
};
struct bf16x2 {
  using Half = bf16;
  uint32_t bits;
};

template <size_t kBytes>
struct BitsOf;
template <>
struct BitsOf<1> {
  using type = u8;
};
template <>
struct BitsOf<2> {
  using type = u16;
};
template <>
struct BitsOf<4> {
  using type = u32;
};
template <>
struct BitsOf<8> {
  using type = u64;
};
template <class T>
using Bits = typename BitsOf<sizeof(T)>::type;

// The low bits of a register, or of an immediate.
template <class To, class From>
inline To As(From from) {
  return std::bit_cast<To>(static_cast<Bits<To>>(std::bit_cast<Bits<From>>(from)));
}

// A vector of a load, a store or a fragment. Up to 16 bytes travel in registers.
template <class T, int kCount>
struct Items {
  T at[kCount];
};

// A function that translated code calls. One copy a file: of another file it may be without a sanitizer. Not inlined:
// translated code is long, and so much of it inlined takes minutes to compile.
#define HOST_CUDA_CALLED [[maybe_unused, gnu::noinline]] static

// A wider register gets the sign of a signed integer and zeros otherwise.
template <class Register, class T>
inline void Put(Register& to, T value) {
  if constexpr (std::is_integral_v<T>) {
    to = static_cast<Register>(value);
  } else {
    to = static_cast<Register>(std::bit_cast<Bits<T>>(value));
  }
}

template <class T>
inline constexpr bool kIsHalf = std::is_same_v<T, f16> || std::is_same_v<T, bf16>;
template <class T>
inline constexpr bool kIsPair = std::is_same_v<T, f16x2> || std::is_same_v<T, bf16x2>;

}  // namespace host_cuda::ptx
