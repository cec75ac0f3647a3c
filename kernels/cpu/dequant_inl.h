// Weights to floats in registers, 32 at a time, for every storage type.
//
// Promise: the bits of DequantizeRow (kernels/dequant.h): the same operations in the same order, where a four-bit code
// is looked up in a table of its sixteen values made by those very operations if the instruction set can.
#pragma once

#include <cstdint>

#include "kernels/cpu/simd_macros.h"
#include "kernels/dtype.h"

namespace sluice::kernels::cpu {

// lo = value(low nibbles), hi = value(high nibbles) of sixteen bytes. `value` maps codes elementwise.
template <class S, class Fn>
SLUICE_INLINE void Nibbles(const uint8_t* bytes, Fn value, typename S::F& lo, typename S::F& hi) {
  const auto codes = S::ZextU8(bytes);
  if constexpr (S::kHasLookup) {
    const auto table = value(S::Iota());
    lo = S::Lookup(table, codes);
    hi = S::Lookup(table, S::Shr(codes, 4));
  } else {
    lo = value(S::ToF(S::And(codes, 15)));
    hi = value(S::ToF(S::Shr(codes, 4)));
  }
}

// The low or high nibbles of 32 bytes.
template <class S, class Fn>
SLUICE_INLINE void NibbleRun(const uint8_t* bytes, int shift, Fn value, typename S::F& lo, typename S::F& hi) {
  const auto a = S::Shr(S::ZextU8(bytes), shift), b = S::Shr(S::ZextU8(bytes + 16), shift);
  if constexpr (S::kHasLookup) {
    const auto table = value(S::Iota());
    lo = S::Lookup(table, a);
    hi = S::Lookup(table, b);
  } else {
    lo = value(S::ToF(S::And(a, 15)));
    hi = value(S::ToF(S::And(b, 15)));
  }
}

template <class S>
SLUICE_INLINE uint32_t LoadU32(const uint8_t* p) {
  return uint32_t(p[0]) | uint32_t(p[1]) << 8 | uint32_t(p[2]) << 16 | uint32_t(p[3]) << 24;
}

// Six-bit scale and minimum number j of the twelve bytes in a Q4_K or Q5_K block.
template <class S>
SLUICE_INLINE void ScaleMinK(const uint8_t* s, int j, float& scale, float& minimum) {
  if (j < 4) {
    scale = float(s[j] & 63);
    minimum = float(s[j + 4] & 63);
  } else {
    scale = float((s[j + 4] & 15) | (s[j - 4] >> 6) << 4);
    minimum = float((s[j + 4] >> 4) | (s[j] >> 6) << 4);
  }
}

// Reader<S, type>::Load32(row, b, cols, lo, hi): elements 32 b ... 32 b + 31 of a row; zero past cols. kStep: about the
// bytes that 32 elements take.
template <class S, DType kType>
struct Reader;

template <class S>
struct Reader<S, DType::kQ4_0> {
  static constexpr int kStep = 18;
  static SLUICE_INLINE void Load32(const uint8_t* row, int64_t b, int64_t, typename S::F& lo, typename S::F& hi) {
    const uint8_t* p = row + b * 18;
    const auto d = S::HalfSplat(p), eight = S::Set1(8.0f);
    Nibbles<S>(
        p + 2, [&](typename S::F q) SLUICE_LAMBDA { return S::Mul(d, S::Sub(q, eight)); }, lo, hi);
  }
};

template <class S>
struct Reader<S, DType::kQ4_1> {
  static constexpr int kStep = 20;
  static SLUICE_INLINE void Load32(const uint8_t* row, int64_t b, int64_t, typename S::F& lo, typename S::F& hi) {
    const uint8_t* p = row + b * 20;
    typename S::F d, m;
    S::Halves2(p, d, m);
    Nibbles<S>(
        p + 4, [&](typename S::F q) SLUICE_LAMBDA { return S::Add(S::Mul(d, q), m); }, lo, hi);
  }
};

// Five-bit codes: nibbles with bit 4 from 32 separate bits.
template <class S>
SLUICE_INLINE void FiveBits(const uint8_t* high_bits, const uint8_t* bytes, typename S::F& lo, typename S::F& hi) {
  const uint32_t bits = LoadU32<S>(high_bits);
  const auto codes = S::ZextU8(bytes);
  lo = S::ToF(S::Or(S::And(codes, 15), S::Bit16(bits & 0xffff)));
  hi = S::ToF(S::Or(S::Shr(codes, 4), S::Bit16(bits >> 16)));
}

template <class S>
struct Reader<S, DType::kQ5_0> {
  static constexpr int kStep = 22;
  static SLUICE_INLINE void Load32(const uint8_t* row, int64_t b, int64_t, typename S::F& lo, typename S::F& hi) {
    const uint8_t* p = row + b * 22;
    const auto d = S::HalfSplat(p), sixteen = S::Set1(16.0f);
    FiveBits<S>(p + 2, p + 6, lo, hi);
    lo = S::Mul(d, S::Sub(lo, sixteen));
    hi = S::Mul(d, S::Sub(hi, sixteen));
  }
};

template <class S>
struct Reader<S, DType::kQ5_1> {
  static constexpr int kStep = 24;
  static SLUICE_INLINE void Load32(const uint8_t* row, int64_t b, int64_t, typename S::F& lo, typename S::F& hi) {
    const uint8_t* p = row + b * 24;
    typename S::F d, m;
    S::Halves2(p, d, m);
    FiveBits<S>(p + 4, p + 8, lo, hi);
    lo = S::Add(S::Mul(d, lo), m);
    hi = S::Add(S::Mul(d, hi), m);
  }
};

template <class S>
struct Reader<S, DType::kQ8_0> {
  static constexpr int kStep = 34;
  static SLUICE_INLINE void Load32(const uint8_t* row, int64_t b, int64_t, typename S::F& lo, typename S::F& hi) {
    const uint8_t* p = row + b * 34;
    const auto d = S::HalfSplat(p);
    lo = S::Mul(d, S::ToF(S::SextI8(p + 2)));
    hi = S::Mul(d, S::ToF(S::SextI8(p + 18)));
  }
};

template <class S>
struct Reader<S, DType::kQ4_K> {
  static constexpr int kStep = 18;
  static SLUICE_INLINE void Load32(const uint8_t* row, int64_t b, int64_t, typename S::F& lo, typename S::F& hi) {
    const uint8_t* p = row + b / 8 * 144;
    const int j = int(b % 8);
    float scale, minimum;
    ScaleMinK<S>(p + 4, j, scale, minimum);
    const auto d = S::Set1(S::Half(p) * scale), m = S::Set1(S::Half(p + 2) * minimum);
    NibbleRun<S>(
        p + 16 + j / 2 * 32, j % 2 * 4, [&](typename S::F q) SLUICE_LAMBDA { return S::Sub(S::Mul(d, q), m); }, lo, hi);
  }
};

template <class S>
struct Reader<S, DType::kQ5_K> {
  static constexpr int kStep = 22;
  static SLUICE_INLINE typename S::F Codes(const uint8_t* bytes, const uint8_t* high_bits, int j) {
    const auto nibble = S::And(S::Shr(S::ZextU8(bytes), j % 2 * 4), 15);
    return S::ToF(S::Or(nibble, S::Shl(S::And(S::Shr(S::ZextU8(high_bits), j), 1), 4)));
  }
  static SLUICE_INLINE void Load32(const uint8_t* row, int64_t b, int64_t, typename S::F& lo, typename S::F& hi) {
    const uint8_t* p = row + b / 8 * 176;
    const int j = int(b % 8);
    float scale, minimum;
    ScaleMinK<S>(p + 4, j, scale, minimum);
    const auto d = S::Set1(S::Half(p) * scale), m = S::Set1(S::Half(p + 2) * minimum);
    const uint8_t* high_bits = p + 16;
    const uint8_t* bytes = p + 48 + j / 2 * 32;
    lo = S::Sub(S::Mul(d, Codes(bytes, high_bits, j)), m);
    hi = S::Sub(S::Mul(d, Codes(bytes + 16, high_bits + 16, j)), m);
  }
};

template <class S>
struct Reader<S, DType::kQ6_K> {
  static constexpr int kStep = 26;
  static SLUICE_INLINE typename S::F Codes(const uint8_t* ql, const uint8_t* qh, int group) {
    const auto low = S::And(S::Shr(S::ZextU8(ql), group / 2 * 4), 15);
    const auto high = S::And(S::Shr(S::ZextU8(qh), group * 2), 3);
    return S::Sub(S::ToF(S::Or(low, S::Shl(high, 4))), S::Set1(32.0f));
  }
  static SLUICE_INLINE void Load32(const uint8_t* row, int64_t b, int64_t, typename S::F& lo, typename S::F& hi) {
    const uint8_t* p = row + b / 8 * 210;
    const int half = int(b % 8) / 4, group = int(b % 4);
    const uint8_t* ql = p + half * 64 + group % 2 * 32;
    const uint8_t* qh = p + 128 + half * 32;
    const uint8_t* scales = p + 192 + half * 8 + group * 2;
    const float d = S::Half(p + 208);
    lo = S::Mul(S::Set1(d * float(int8_t(scales[0]))), Codes(ql, qh, group));
    hi = S::Mul(S::Set1(d * float(int8_t(scales[1]))), Codes(ql + 16, qh + 16, group));
  }
};

template <class S>
struct LoadF32 {
  static constexpr int kBytes = 4;
  static SLUICE_INLINE typename S::F Load(const uint8_t* p) {
    float v[16];
    __builtin_memcpy(v, p, sizeof v);  // a mapped file promises no alignment
    return S::Load(v);
  }
};

template <class S>
struct LoadF16 {
  static constexpr int kBytes = 2;
  static SLUICE_INLINE typename S::F Load(const uint8_t* p) { return S::LoadHalf(p); }
};

template <class S>
struct LoadBF16 {
  static constexpr int kBytes = 2;
  static SLUICE_INLINE typename S::F Load(const uint8_t* p) { return S::LoadBf16(p); }
};

// Plain floats: rows of any length. Loader reads sixteen; the tail goes through a zeroed copy.
template <class S, class Loader>
struct PlainReader {
  static constexpr int kBytes = Loader::kBytes;
  static constexpr int kStep = 32 * kBytes;
  static SLUICE_INLINE typename S::F Load16(const uint8_t* row, int64_t k, int64_t cols) {
    if (k + 16 <= cols) return Loader::Load(row + k * kBytes);
    uint8_t tail[16 * kBytes] = {};
    const int64_t n = k < cols ? (cols - k) * kBytes : 0;
    for (int64_t i = 0; i < n; ++i) tail[i] = row[k * kBytes + i];
    return Loader::Load(tail);
  }
  static SLUICE_INLINE void Load32(const uint8_t* row, int64_t b, int64_t cols, typename S::F& lo, typename S::F& hi) {
    lo = Load16(row, b * 32, cols);
    hi = Load16(row, b * 32 + 16, cols);
  }
};

template <class S>
struct Reader<S, DType::kF32> : PlainReader<S, LoadF32<S>> {};
template <class S>
struct Reader<S, DType::kF16> : PlainReader<S, LoadF16<S>> {};
template <class S>
struct Reader<S, DType::kBF16> : PlainReader<S, LoadBF16<S>> {};

// One row to memory, zero-padded to a multiple of 32.
template <class S, DType kType>
void DequantizePadded(const uint8_t* row, int64_t cols, float* out) {
  for (int64_t b = 0; b * 32 < cols; ++b) {
    typename S::F lo, hi;
    Reader<S, kType>::Load32(row, b, cols, lo, hi);
    S::Store(out + b * 32, lo);
    S::Store(out + b * 32 + 16, hi);
  }
}

// Calls fn.template operator()<type>().
template <class Fn>
SLUICE_INLINE void DispatchType(DType type, Fn fn) {
  switch (type) {
    case DType::kF32:
      return fn.template operator()<DType::kF32>();
    case DType::kF16:
      return fn.template operator()<DType::kF16>();
    case DType::kBF16:
      return fn.template operator()<DType::kBF16>();
    case DType::kQ4_0:
      return fn.template operator()<DType::kQ4_0>();
    case DType::kQ4_1:
      return fn.template operator()<DType::kQ4_1>();
    case DType::kQ5_0:
      return fn.template operator()<DType::kQ5_0>();
    case DType::kQ5_1:
      return fn.template operator()<DType::kQ5_1>();
    case DType::kQ8_0:
      return fn.template operator()<DType::kQ8_0>();
    case DType::kQ4_K:
      return fn.template operator()<DType::kQ4_K>();
    case DType::kQ5_K:
      return fn.template operator()<DType::kQ5_K>();
    case DType::kQ6_K:
      return fn.template operator()<DType::kQ6_K>();
  }
}

template <class S>
void Dequantize(DType type, const uint8_t* row, int64_t cols, float* out) {
  DispatchType(type, [&]<DType kType>() { DequantizePadded<S, kType>(row, cols, out); });
}

}  // namespace sluice::kernels::cpu
