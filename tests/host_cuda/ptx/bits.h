// Integer instructions that C++ has no operator for.
#pragma once

#include <algorithm>
#include <bit>

#include "tests/host_cuda/ptx/types.h"

namespace host_cuda::ptx {

template <class T>
inline T ShiftLeft(T a, u32 by) {
  return by >= 8 * sizeof(T) ? T{0} : static_cast<T>(static_cast<Bits<T>>(a) << by);
}
template <class T>
inline T ShiftRight(T a, u32 by) {
  constexpr u32 kLast = 8 * sizeof(T) - 1;
  if (by > kLast) return std::is_signed_v<T> ? static_cast<T>(a >> kLast) : T{0};
  return static_cast<T>(a >> by);
}
inline u32 FunnelLeft(u32 low, u32 high, u32 by, bool wrap) {
  by = wrap ? by & 31 : std::min(by, 32u);
  return static_cast<u32>(((u64{high} << 32 | low) << by) >> 32);
}
inline u32 FunnelRight(u32 low, u32 high, u32 by, bool wrap) {
  by = wrap ? by & 31 : std::min(by, 32u);
  return static_cast<u32>((u64{high} << 32 | low) >> by);
}

// bfe: `length` bits from `position` on, with the sign of the last for signed types.
template <class T>
inline T ExtractBits(T a, u32 position, u32 length) {
  constexpr u32 kLast = 8 * sizeof(T) - 1;
  position &= 255;
  length &= 255;
  const auto bits = static_cast<Bits<T>>(a);
  const bool negative = std::is_signed_v<T> && length != 0 && (bits >> std::min(position + length - 1, kLast) & 1) != 0;
  Bits<T> result = 0;
  for (u32 i = 0; i <= kLast; ++i) {
    const bool bit = i < length && position + i <= kLast ? (bits >> (position + i) & 1) != 0 : negative;
    if (bit) result |= Bits<T>{1} << i;
  }
  return static_cast<T>(result);
}
template <class T>
inline T InsertBits(T from, T into, u32 position, u32 length) {
  constexpr u32 kBits = 8 * sizeof(T);
  position &= 255;
  length &= 255;
  if (position >= kBits || length == 0) return into;
  const T ones = length >= kBits ? static_cast<T>(-1) : static_cast<T>((T{1} << length) - 1);
  const T mask = static_cast<T>(ones << position);
  return static_cast<T>((into & ~mask) | ((from << position) & mask));
}
// bfind: the highest bit that differs from the sign; all ones where there is none.
template <class T>
inline u32 FindBit(T a, bool shift_amount) {
  auto bits = static_cast<Bits<T>>(a);
  if (std::is_signed_v<T> && a < 0) bits = static_cast<Bits<T>>(~bits);
  if (bits == 0) return ~0u;
  const auto highest = static_cast<u32>(std::bit_width(bits) - 1);
  return shift_amount ? static_cast<u32>(8 * sizeof(T)) - 1 - highest : highest;
}
template <class T>
inline T ReverseBits(T a) {
  T result = 0;
  for (size_t i = 0; i < 8 * sizeof(T); ++i) result = static_cast<T>(result << 1 | (a >> i & 1));
  return result;
}

// prmt: four bytes out of the eight of a and b, each chosen by a nibble of the selector; its high bit copies the byte's
// sign.
inline u32 PermuteBytes(u32 a, u32 b, u32 selector) {
  const u64 bytes = u64{b} << 32 | a;
  u32 result = 0;
  for (int i = 0; i < 4; ++i) {
    const u32 nibble = selector >> (4 * i) & 15;
    u32 byte = static_cast<u32>(bytes >> (8 * (nibble & 7))) & 255;
    if ((nibble & 8) != 0) byte = (byte & 128) != 0 ? 255 : 0;
    result |= byte << (8 * i);
  }
  return result;
}

// lop3: bit (a<<2 | b<<1 | c) of the table.
inline u32 Logic3(u32 a, u32 b, u32 c, u32 table) {
  u32 result = 0;
  if ((table & 0x01) != 0) result |= ~a & ~b & ~c;
  if ((table & 0x02) != 0) result |= ~a & ~b & c;
  if ((table & 0x04) != 0) result |= ~a & b & ~c;
  if ((table & 0x08) != 0) result |= ~a & b & c;
  if ((table & 0x10) != 0) result |= a & ~b & ~c;
  if ((table & 0x20) != 0) result |= a & ~b & c;
  if ((table & 0x40) != 0) result |= a & b & ~c;
  if ((table & 0x80) != 0) result |= a & b & c;
  return result;
}

template <class A, class B>
inline u32 Dot4(u32 a, u32 b, u32 c) {
  for (int i = 0; i < 4; ++i)
    c += static_cast<u32>(static_cast<s32>(static_cast<A>(a >> (8 * i))) * static_cast<B>(b >> (8 * i)));
  return c;
}
// dp2a: the two halves of a with the low or the high two bytes of b.
template <class A, class B>
inline u32 Dot2(u32 a, u32 b, u32 c, bool high) {
  for (int i = 0; i < 2; ++i) {
    c += static_cast<u32>(static_cast<s32>(static_cast<A>(a >> (16 * i))) *
                          static_cast<B>(b >> (8 * (i + (high ? 2 : 0)))));
  }
  return c;
}
template <class T>
inline T SumOfDifference(T a, T b, T c) {
  return static_cast<T>(static_cast<Bits<T>>(c) + (a < b ? static_cast<Bits<T>>(b) - static_cast<Bits<T>>(a)
                                                         : static_cast<Bits<T>>(a) - static_cast<Bits<T>>(b)));
}

// add.cc, addc and their like: `carry` is the condition register.
template <class T>
inline T AddCarry(T a, T b, bool in, bool* out) {
  const u128 sum = static_cast<u128>(static_cast<Bits<T>>(a)) + static_cast<Bits<T>>(b) + (in ? 1 : 0);
  *out = (sum >> (8 * sizeof(T))) != 0;
  return static_cast<T>(static_cast<Bits<T>>(sum));
}
template <class T>
inline T SubBorrow(T a, T b, bool in, bool* out) {
  const u128 less = static_cast<u128>(static_cast<Bits<T>>(b)) + (in ? 1 : 0);
  *out = static_cast<Bits<T>>(a) < less;
  return static_cast<T>(static_cast<Bits<T>>(static_cast<Bits<T>>(a) - static_cast<Bits<T>>(less)));
}

}  // namespace host_cuda::ptx
