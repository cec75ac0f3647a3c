// Sixteen virtual lanes as a plain array: the definition that the vector types are held against.
// fma is the IEEE operation (an instruction, as the file is compiled with -mfma).
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/cpu/simd_macros.h"
#include "kernels/dequant.h"

namespace sluice::kernels::cpu::scalar {

struct F16x {
  float v[16];
};
struct I16x {
  int32_t v[16];
};
struct F8x {
  float v[8];
};

struct Simd {
  using F = F16x;  // sixteen floats
  using I = I16x;  // sixteen int32
  using H = F8x;   // eight floats: results of eight dot products
  static constexpr bool kHasLookup = false;
  static constexpr int kDotRows = 1;  // x rows of a register tile
  static constexpr int kPvRows = 1;   // (token, head) rows of a register tile in attention
  static constexpr int kPvVectors = 1;
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

  template <class Fn>
  static SLUICE_INLINE F Map(Fn fn) {
    F r;
    for (int i = 0; i < 16; ++i) r.v[i] = fn(i);
    return r;
  }
  template <class Fn>
  static SLUICE_INLINE I MapI(Fn fn) {
    I r;
    for (int i = 0; i < 16; ++i) r.v[i] = fn(i);
    return r;
  }

  static SLUICE_INLINE F Zero() { return F{}; }
  static SLUICE_INLINE F Set1(float x) {
    return Map([&](int) { return x; });
  }
  static SLUICE_INLINE F Iota() {
    return Map([&](int i) { return float(i); });
  }
  static SLUICE_INLINE F Load(const float* p) {
    F r;
    std::memcpy(r.v, p, sizeof r.v);
    return r;
  }
  static SLUICE_INLINE F LoadPartial(const float* p, int n) {
    F r{};
    std::memcpy(r.v, p, size_t(n) * sizeof(float));
    return r;
  }
  static SLUICE_INLINE void Store(float* p, F a) { std::memcpy(p, a.v, sizeof a.v); }
  static SLUICE_INLINE void StorePartial(float* p, F a, int n) { std::memcpy(p, a.v, size_t(n) * sizeof(float)); }

  static SLUICE_INLINE F Add(F a, F b) {
    return Map([&](int i) { return a.v[i] + b.v[i]; });
  }
  static SLUICE_INLINE F Sub(F a, F b) {
    return Map([&](int i) { return a.v[i] - b.v[i]; });
  }
  static SLUICE_INLINE F Mul(F a, F b) {
    return Map([&](int i) { return a.v[i] * b.v[i]; });
  }
  static SLUICE_INLINE F Div(F a, F b) {
    return Map([&](int i) { return a.v[i] / b.v[i]; });
  }
  static SLUICE_INLINE F Fma(F a, F b, F c) {
    return Map([&](int i) { return __builtin_fmaf(a.v[i], b.v[i], c.v[i]); });
  }
  static SLUICE_INLINE F Max(F a, F b) {  // b when either is NaN, as the instruction
    return Map([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
  }
  static SLUICE_INLINE F Min(F a, F b) {
    return Map([&](int i) { return a.v[i] < b.v[i] ? a.v[i] : b.v[i]; });
  }
  // a where x >= bound, else 0.
  static SLUICE_INLINE F KeepWhereGe(F a, F x, F bound) {
    return Map([&](int i) { return x.v[i] >= bound.v[i] ? a.v[i] : 0.0f; });
  }
  // a * 2^n for whole n in [-126, 127].
  static SLUICE_INLINE F ScaleByPow2(F a, F n) {
    return Map([&](int i) {
      const uint32_t bits = uint32_t(int32_t(n.v[i]) + 127) << 23;
      float scale;
      std::memcpy(&scale, &bits, sizeof scale);
      return a.v[i] * scale;
    });
  }

  static SLUICE_INLINE float ReduceAdd(F a) {
    for (int d = 8; d >= 1; d /= 2) {
      for (int i = 0; i < d; ++i) a.v[i] = a.v[i] + a.v[i + d];
    }
    return a.v[0];
  }
  static SLUICE_INLINE float ReduceMax(F a) {
    for (int d = 8; d >= 1; d /= 2) {
      for (int i = 0; i < d; ++i) a.v[i] = a.v[i] > a.v[i + d] ? a.v[i] : a.v[i + d];
    }
    return a.v[0];
  }
  static SLUICE_INLINE float First(F a) { return a.v[0]; }
  static SLUICE_INLINE H Reduce8(const F* a) {
    H r;
    for (int i = 0; i < 8; ++i) r.v[i] = ReduceAdd(a[i]);
    return r;
  }
  static SLUICE_INLINE H LoadH(const float* p) {
    H r;
    std::memcpy(r.v, p, sizeof r.v);
    return r;
  }
  static SLUICE_INLINE void StoreH(float* p, H a) { std::memcpy(p, a.v, sizeof a.v); }
  static SLUICE_INLINE H AddH(H a, H b) {
    for (int i = 0; i < 8; ++i) a.v[i] = a.v[i] + b.v[i];
    return a;
  }

  static SLUICE_INLINE I ZextU8(const uint8_t* p) {
    return MapI([&](int i) { return int32_t(p[i]); });
  }
  static SLUICE_INLINE I SextI8(const uint8_t* p) {
    return MapI([&](int i) { return int32_t(int8_t(p[i])); });
  }
  static SLUICE_INLINE I And(I a, int mask) {
    return MapI([&](int i) { return a.v[i] & mask; });
  }
  static SLUICE_INLINE I Or(I a, I b) {
    return MapI([&](int i) { return a.v[i] | b.v[i]; });
  }
  static SLUICE_INLINE I Shr(I a, int n) {
    return MapI([&](int i) { return int32_t(uint32_t(a.v[i]) >> n); });
  }
  static SLUICE_INLINE I Shl(I a, int n) {
    return MapI([&](int i) { return int32_t(uint32_t(a.v[i]) << n); });
  }
  // 16 in lane i where bit i of `bits` is set, else 0.
  static SLUICE_INLINE I Bit16(uint32_t bits) {
    return MapI([&](int i) { return int32_t(bits >> i & 1) << 4; });
  }
  static SLUICE_INLINE F ToF(I a) {
    return Map([&](int i) { return float(a.v[i]); });
  }

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
    return Map([&](int i) { return Half(p + 2 * i); });
  }
  static SLUICE_INLINE F LoadBf16(const uint8_t* p) {
    return Map([&](int i) {
      uint16_t bits;
      std::memcpy(&bits, p + 2 * i, sizeof bits);
      return BF16ToF32(bits);
    });
  }
};

}  // namespace sluice::kernels::cpu::scalar
