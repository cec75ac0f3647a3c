// Sixteen virtual lanes in plain C++: elementwise operators on the compiler's vector types, no intrinsics. The
// definition that the other vector types are held against. fma is the IEEE operation (an instruction, as the file is
// compiled with -mfma).
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/cpu/simd_macros.h"
#include "kernels/dequant.h"

namespace sluice::kernels::cpu::scalar {

typedef float Floats16 __attribute__((vector_size(64)));
typedef int32_t Ints16 __attribute__((vector_size(64)));
typedef uint32_t Bits16 __attribute__((vector_size(64)));
typedef float Floats8 __attribute__((vector_size(32)));

struct Simd {
  using F = Floats16;  // sixteen floats
  using I = Ints16;    // sixteen int32
  using H = Floats8;   // eight floats: results of eight dot products
  static constexpr bool kHasLookup = false;
  static constexpr int kDotRows = 1;  // x rows of a register tile
  static constexpr int kPvRows = 1;   // (token, head) rows of a register tile in attention
  static constexpr int kPvVectors = 1;
  static constexpr int kScoreRows = 1;
  static constexpr int kScoreVectors = 1;
  static constexpr int kBf16Rows = 1;  // of a register tile in products with bf16
  static constexpr int kBf16Panels = 1;
  static constexpr int kGemvRows = 1;

  using P = F;  // a register tile's element: all lanes
  static constexpr int kParts = 1;
  static constexpr int kPartColumns = 8;
  static SLUICE_INLINE P ZeroP() { return F{}; }
  static SLUICE_INLINE P LoadP(const float* p, int) { return Load(p); }
  static SLUICE_INLINE P Keep(P p) { return p; }
  static SLUICE_INLINE F KeepAll(F f) { return f; }
  static SLUICE_INLINE P FmaP(P a, P b, P c) { return Fma(a, b, c); }
  static SLUICE_INLINE void SetPart(F& f, int, P p) { f = p; }

  static SLUICE_INLINE F Zero() { return F{}; }
  static SLUICE_INLINE F Set1(float x) { return F{} + x; }
  static SLUICE_INLINE F Iota() { return F{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}; }
  static SLUICE_INLINE F Load(const float* p) {
    F r = {};
    std::memcpy(&r, p, sizeof r);
    return r;
  }
  static SLUICE_INLINE F LoadPartial(const float* p, int n) {
    F r{};
    std::memcpy(&r, p, size_t(n) * sizeof(float));
    return r;
  }
  static SLUICE_INLINE void Store(float* p, F a) { std::memcpy(p, &a, sizeof a); }
  static SLUICE_INLINE void StorePartial(float* p, F a, int n) { std::memcpy(p, &a, size_t(n) * sizeof(float)); }

  static SLUICE_INLINE F Add(F a, F b) { return a + b; }
  static SLUICE_INLINE F Sub(F a, F b) { return a - b; }
  static SLUICE_INLINE F Mul(F a, F b) { return a * b; }
  static SLUICE_INLINE F Div(F a, F b) { return a / b; }
  static SLUICE_INLINE F Fma(F a, F b, F c) {
    F r = {};
    SLUICE_UNROLL
    for (int i = 0; i < 16; ++i) r[i] = __builtin_fmaf(a[i], b[i], c[i]);
    return r;
  }
  static SLUICE_INLINE F Max(F a, F b) { return a > b ? a : b; }  // b when either is NaN, as the instruction
  static SLUICE_INLINE F Min(F a, F b) { return a < b ? a : b; }
  // a where x >= bound, else 0.
  static SLUICE_INLINE F KeepWhereGe(F a, F x, F bound) { return x >= bound ? a : F{}; }
  // a * 2^n for whole n in [-126, 127].
  static SLUICE_INLINE F ScaleByPow2(F a, F n) {
    const I bits = (__builtin_convertvector(n, I) + 127) << 23;
    F scale;
    std::memcpy(&scale, &bits, sizeof scale);
    return a * scale;
  }

  static SLUICE_INLINE float ReduceAdd(F a) {
    SLUICE_UNROLL
    for (int d = 8; d >= 1; d /= 2) {
      SLUICE_UNROLL
      for (int i = 0; i < d; ++i) a[i] = a[i] + a[i + d];
    }
    return a[0];
  }
  static SLUICE_INLINE float ReduceMax(F a) {
    SLUICE_UNROLL
    for (int d = 8; d >= 1; d /= 2) {
      SLUICE_UNROLL
      for (int i = 0; i < d; ++i) a[i] = a[i] > a[i + d] ? a[i] : a[i + d];
    }
    return a[0];
  }
  // Lane i becomes a[i] + a[i ^ kDistance], or a[i ^ kDistance] - a[i] where i has that bit: one level of a Walsh-
  // Hadamard transform.
  template <int kDistance>
  static SLUICE_INLINE F Butterfly(F a) {
    F r = {};
    SLUICE_UNROLL
    for (int i = 0; i < 16; ++i) r[i] = (i & kDistance) ? a[i ^ kDistance] - a[i] : a[i ^ kDistance] + a[i];
    return r;
  }
  // Lane i changes its sign where bit i of `bits` is set.
  static SLUICE_INLINE F FlipSigns(F a, uint32_t bits) {
    SLUICE_UNROLL
    for (int i = 0; i < 16; ++i) a[i] = (bits >> i) & 1 ? -a[i] : a[i];
    return a;
  }
  static SLUICE_INLINE F Abs(F a) {
    I bits;
    std::memcpy(&bits, &a, sizeof bits);
    bits &= 0x7fffffff;
    std::memcpy(&a, &bits, sizeof a);
    return a;
  }
  // round-to-nearest-even(a) + 128 of lanes in [-128, 127], as sixteen bytes.
  static SLUICE_INLINE void StoreU8(uint8_t* p, F a) {
    const F shifted = a + 12582912.0f;  // 1.5 * 2^23: the integer is in the low bits
    Bits16 bits;
    std::memcpy(&bits, &shifted, sizeof bits);
    SLUICE_UNROLL
    for (int i = 0; i < 16; ++i) p[i] = uint8_t(bits[i] + 128u);
  }
  static SLUICE_INLINE I ZeroI() { return I{}; }
  static SLUICE_INLINE I LoadI(const int32_t* p) {
    I r;
    std::memcpy(&r, p, sizeof r);
    return r;
  }
  static SLUICE_INLINE I Set1I(int32_t x) { return I{} + x; }
  static SLUICE_INLINE I SubI(I a, I b) { return a - b; }
  static SLUICE_INLINE float First(F a) { return a[0]; }
  static SLUICE_INLINE H Reduce8(const F* a) {
    H r = {};
    SLUICE_UNROLL
    for (int i = 0; i < 8; ++i) r[i] = ReduceAdd(a[i]);
    return r;
  }
  static SLUICE_INLINE H LoadH(const float* p) {
    H r = {};
    std::memcpy(&r, p, sizeof r);
    return r;
  }
  static SLUICE_INLINE void StoreH(float* p, H a) { std::memcpy(p, &a, sizeof a); }
  static SLUICE_INLINE H AddH(H a, H b) { return a + b; }

  static SLUICE_INLINE I ZextU8(const uint8_t* p) {
    typedef uint8_t Bytes __attribute__((vector_size(16)));
    Bytes bytes;
    std::memcpy(&bytes, p, sizeof bytes);
    return __builtin_convertvector(bytes, I);
  }
  static SLUICE_INLINE I SextI8(const uint8_t* p) {
    typedef int8_t Bytes __attribute__((vector_size(16)));
    Bytes bytes;
    std::memcpy(&bytes, p, sizeof bytes);
    return __builtin_convertvector(bytes, I);
  }
  static SLUICE_INLINE I And(I a, int mask) { return a & mask; }
  static SLUICE_INLINE I Or(I a, I b) { return a | b; }
  static SLUICE_INLINE I Shr(I a, int n) { return I(Bits16(a) >> uint32_t(n)); }
  static SLUICE_INLINE I Shl(I a, int n) { return I(Bits16(a) << uint32_t(n)); }
  // 16 in lane i where bit i of `bits` is set, else 0.
  static SLUICE_INLINE I Bit16(uint32_t bits) {
    const Bits16 lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    return I((((Bits16{} + bits) >> lane) & 1u) << 4u);
  }
  static SLUICE_INLINE F ToF(I a) { return __builtin_convertvector(a, F); }

  static SLUICE_INLINE float Half(const uint8_t* p) {
    uint16_t bits;
    std::memcpy(&bits, p, sizeof bits);
    return F16ToF32(bits);
  }
  static SLUICE_INLINE F HalfSplat(const uint8_t* p) { return Set1(Half(p)); }
  static SLUICE_INLINE void Halves2(const uint8_t* p, F& first, F& second) {
    first = Set1(Half(p));
    second = Set1(Half(p + 2));
  }
  static SLUICE_INLINE F LoadHalf(const uint8_t* p) {
    F r = {};
    for (int i = 0; i < 16; ++i) r[i] = Half(p + 2 * i);
    return r;
  }
  // Sixteen pairs: their first elements, their second ones.
  static SLUICE_INLINE void LoadBf16Pairs(const uint16_t* p, F& first, F& second) {
    Bits16 pairs = {};
    std::memcpy(&pairs, p, sizeof pairs);
    const Bits16 low = pairs << 16, high = pairs & 0xffff0000u;
    std::memcpy(&first, &low, sizeof first);
    std::memcpy(&second, &high, sizeof second);
  }
  static SLUICE_INLINE F LoadBf16(const uint8_t* p) {
    F r = {};
    for (int i = 0; i < 16; ++i) {
      uint16_t bits;
      std::memcpy(&bits, p + 2 * i, sizeof bits);
      r[i] = BF16ToF32(bits);
    }
    return r;
  }
};

}  // namespace sluice::kernels::cpu::scalar
