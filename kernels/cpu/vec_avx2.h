// Sixteen virtual lanes as two 256-bit registers. Included only by files compiled with AVX2, FMA and F16C.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "kernels/cpu/simd_macros.h"

namespace sluice::kernels::cpu::avx2 {

struct Two {
  __m256 lo, hi;
};
struct TwoI {
  __m256i lo, hi;
};

struct Simd {
  using F = Two;
  using I = TwoI;
  using H = __m256;
  static constexpr bool kHasLookup = false;
  static constexpr int kDotRows = 3;  // 3 x 4 accumulators of half the lanes + 3 x + 1 w of 16 registers
  static constexpr int kPvRows = 2;   // 2 x 2 pairs of accumulators + 2 pairs of v
  static constexpr int kPvVectors = 2;
  static constexpr int kScoreRows = 3;  // 3 x 1 pairs of accumulators, 1 pair of keys
  static constexpr int kScoreVectors = 1;
  static constexpr int kBf16Rows = 4;  // 4 x 1 pairs of accumulators + 2 pairs of weights + x of 16 registers
  static constexpr int kBf16Panels = 1;
  static constexpr int kGemvRows = 4;

  // What one register of a register tile holds: half of the lanes. A tile is computed once for each half.
  using P = __m256;
  static constexpr int kParts = 2;
  static constexpr int kPartColumns = 4;
  static SLUICE_INLINE P ZeroP() { return _mm256_setzero_ps(); }
  static SLUICE_INLINE P LoadP(const float* p, int part) { return _mm256_loadu_ps(p + 8 * part); }
  // Keeps a value in a register: the compiler would rather fold its load into each of its uses, and loads are scarcer.
  static SLUICE_INLINE P Keep(P p) {
    asm("" : "+x"(p));
    return p;
  }
  static SLUICE_INLINE F KeepAll(F f) { return {Keep(f.lo), Keep(f.hi)}; }
  static SLUICE_INLINE P FmaP(P a, P b, P c) { return _mm256_fmadd_ps(a, b, c); }
  static SLUICE_INLINE void SetPart(F& f, int part, P p) { (part == 0 ? f.lo : f.hi) = p; }

  static SLUICE_INLINE F Zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
  static SLUICE_INLINE F Set1(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
  static SLUICE_INLINE F Iota() {
    return {_mm256_setr_ps(0, 1, 2, 3, 4, 5, 6, 7), _mm256_setr_ps(8, 9, 10, 11, 12, 13, 14, 15)};
  }
  static SLUICE_INLINE F Load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
  static SLUICE_INLINE F LoadPartial(const float* p, int n) {
    float full[16] = {};
    std::memcpy(full, p, size_t(n) * sizeof(float));
    return Load(full);
  }
  static SLUICE_INLINE void Store(float* p, F a) {
    _mm256_storeu_ps(p, a.lo);
    _mm256_storeu_ps(p + 8, a.hi);
  }
  static SLUICE_INLINE void StorePartial(float* p, F a, int n) {
    float full[16];
    Store(full, a);
    std::memcpy(p, full, size_t(n) * sizeof(float));
  }

  static SLUICE_INLINE F Add(F a, F b) { return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)}; }
  static SLUICE_INLINE F Sub(F a, F b) { return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)}; }
  static SLUICE_INLINE F Mul(F a, F b) { return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)}; }
  static SLUICE_INLINE F Div(F a, F b) { return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)}; }
  static SLUICE_INLINE F Fma(F a, F b, F c) {
    return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
  }
  static SLUICE_INLINE F Max(F a, F b) { return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)}; }
  static SLUICE_INLINE F Min(F a, F b) { return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)}; }
  static SLUICE_INLINE F KeepWhereGe(F a, F x, F bound) {
    return {_mm256_and_ps(a.lo, _mm256_cmp_ps(x.lo, bound.lo, _CMP_GE_OQ)),
            _mm256_and_ps(a.hi, _mm256_cmp_ps(x.hi, bound.hi, _CMP_GE_OQ))};
  }
  static SLUICE_INLINE __m256 Pow2(__m256 n) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_cvttps_epi32(n), _mm256_set1_epi32(127)), 23));
  }
  static SLUICE_INLINE F ScaleByPow2(F a, F n) {
    return {_mm256_mul_ps(a.lo, Pow2(n.lo)), _mm256_mul_ps(a.hi, Pow2(n.hi))};
  }

  static SLUICE_INLINE __m128 Fold128(__m256 a) {
    return _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  }
  static SLUICE_INLINE float ReduceAdd(F a) {
    const __m128 s = Fold128(_mm256_add_ps(a.lo, a.hi));
    const __m128 t = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(t, _mm_movehdup_ps(t)));
  }
  static SLUICE_INLINE float ReduceMax(F a) {
    const __m256 h = _mm256_max_ps(a.lo, a.hi);
    const __m128 s = _mm_max_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
    const __m128 t = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(t, _mm_movehdup_ps(t)));
  }
  template <int kDistance>
  static SLUICE_INLINE __m256 Butterfly8(__m256 a) {  // within eight lanes
    const __m256 swapped = kDistance == 1   ? _mm256_permute_ps(a, 0xB1)
                           : kDistance == 2 ? _mm256_permute_ps(a, 0x4E)
                                            : _mm256_permute2f128_ps(a, a, 0x01);
    constexpr int kMask = kDistance == 1 ? 0xAA : kDistance == 2 ? 0xCC : 0xF0;
    return _mm256_blend_ps(_mm256_add_ps(swapped, a), _mm256_sub_ps(swapped, a), kMask);
  }
  template <int kDistance>
  static SLUICE_INLINE F Butterfly(F a) {
    if constexpr (kDistance == 8) return {_mm256_add_ps(a.hi, a.lo), _mm256_sub_ps(a.lo, a.hi)};
    return {Butterfly8<kDistance>(a.lo), Butterfly8<kDistance>(a.hi)};
  }
  static SLUICE_INLINE F FlipSigns(F a, uint32_t bits) {
    const __m256i all = _mm256_set1_epi32(int(bits)), sign = _mm256_set1_epi32(int(0x80000000u));
    const __m256i lo = _mm256_sllv_epi32(all, _mm256_setr_epi32(31, 30, 29, 28, 27, 26, 25, 24));
    const __m256i hi = _mm256_sllv_epi32(all, _mm256_setr_epi32(23, 22, 21, 20, 19, 18, 17, 16));
    return {_mm256_xor_ps(a.lo, _mm256_castsi256_ps(_mm256_and_si256(lo, sign))),
            _mm256_xor_ps(a.hi, _mm256_castsi256_ps(_mm256_and_si256(hi, sign)))};
  }
  static SLUICE_INLINE F Abs(F a) {
    const __m256 sign = _mm256_set1_ps(-0.0f);
    return {_mm256_andnot_ps(sign, a.lo), _mm256_andnot_ps(sign, a.hi)};
  }
  static SLUICE_INLINE void StoreU8(uint8_t* p, F a) {
    const __m256i offset = _mm256_set1_epi32(128);
    const __m256i lo = _mm256_add_epi32(_mm256_cvtps_epi32(a.lo), offset);
    const __m256i hi = _mm256_add_epi32(_mm256_cvtps_epi32(a.hi), offset);
    const __m256i words = _mm256_permute4x64_epi64(_mm256_packus_epi32(lo, hi), 0xD8);  // 16-bit, in order
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p),
                     _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1)));
  }
  static SLUICE_INLINE I ZeroI() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
  static SLUICE_INLINE __m256i LoadI8(const int32_t* p) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  }
  static SLUICE_INLINE I LoadI(const int32_t* p) { return {LoadI8(p), LoadI8(p + 8)}; }
  static SLUICE_INLINE I Set1I(int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
  static SLUICE_INLINE I SubI(I a, I b) { return {_mm256_sub_epi32(a.lo, b.lo), _mm256_sub_epi32(a.hi, b.hi)}; }
  static SLUICE_INLINE float First(F a) { return _mm256_cvtss_f32(a.lo); }

  // [a at distance 4 | b at distance 4] of two vectors already folded at distance 8.
  static SLUICE_INLINE __m256 Join4(__m256 a, __m256 b) {
    return _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
  }
  static SLUICE_INLINE H Reduce8(const F* a) {
    __m256 t[8];
    SLUICE_UNROLL
    for (int i = 0; i < 8; ++i) t[i] = _mm256_add_ps(a[i].lo, a[i].hi);
    const __m256 p0 = Join4(t[0], t[4]), p1 = Join4(t[1], t[5]), p2 = Join4(t[2], t[6]), p3 = Join4(t[3], t[7]);
    const __m256 q0 = _mm256_add_ps(_mm256_shuffle_ps(p0, p1, 0x44), _mm256_shuffle_ps(p0, p1, 0xEE));
    const __m256 q1 = _mm256_add_ps(_mm256_shuffle_ps(p2, p3, 0x44), _mm256_shuffle_ps(p2, p3, 0xEE));
    return _mm256_add_ps(_mm256_shuffle_ps(q0, q1, 0x88), _mm256_shuffle_ps(q0, q1, 0xDD));
  }
  static SLUICE_INLINE H LoadH(const float* p) { return _mm256_loadu_ps(p); }
  static SLUICE_INLINE void StoreH(float* p, H a) { _mm256_storeu_ps(p, a); }
  static SLUICE_INLINE H AddH(H a, H b) { return _mm256_add_ps(a, b); }

  static SLUICE_INLINE __m128i Load64(const uint8_t* p) { return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)); }
  static SLUICE_INLINE I ZextU8(const uint8_t* p) {
    return {_mm256_cvtepu8_epi32(Load64(p)), _mm256_cvtepu8_epi32(Load64(p + 8))};
  }
  static SLUICE_INLINE I SextI8(const uint8_t* p) {
    return {_mm256_cvtepi8_epi32(Load64(p)), _mm256_cvtepi8_epi32(Load64(p + 8))};
  }
  static SLUICE_INLINE I And(I a, int mask) {
    const __m256i m = _mm256_set1_epi32(mask);
    return {_mm256_and_si256(a.lo, m), _mm256_and_si256(a.hi, m)};
  }
  static SLUICE_INLINE I Or(I a, I b) { return {_mm256_or_si256(a.lo, b.lo), _mm256_or_si256(a.hi, b.hi)}; }
  static SLUICE_INLINE I Shr(I a, int n) {
    const __m128i c = _mm_cvtsi32_si128(n);
    return {_mm256_srl_epi32(a.lo, c), _mm256_srl_epi32(a.hi, c)};
  }
  static SLUICE_INLINE I Shl(I a, int n) {
    const __m128i c = _mm_cvtsi32_si128(n);
    return {_mm256_sll_epi32(a.lo, c), _mm256_sll_epi32(a.hi, c)};
  }
  static SLUICE_INLINE I Bit16(uint32_t bits) {
    const __m256i all = _mm256_set1_epi32(int(bits)), one = _mm256_set1_epi32(16);
    const __m256i lo = _mm256_srlv_epi32(_mm256_slli_epi32(all, 4), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    const __m256i hi = _mm256_srlv_epi32(_mm256_slli_epi32(all, 4), _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15));
    return {_mm256_and_si256(lo, one), _mm256_and_si256(hi, one)};
  }
  static SLUICE_INLINE F ToF(I a) { return {_mm256_cvtepi32_ps(a.lo), _mm256_cvtepi32_ps(a.hi)}; }

  static SLUICE_INLINE float Half(const uint8_t* p) {
    uint16_t bits;
    std::memcpy(&bits, p, sizeof bits);
    return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(bits)));
  }
  // The half-float at p in all lanes; with Halves2, and the one after it. Reads eight bytes.
  static SLUICE_INLINE __m128 Halves(const uint8_t* p) { return _mm_cvtph_ps(Load64(p)); }
  static SLUICE_INLINE F HalfSplat(const uint8_t* p) {
    const __m256 d = _mm256_broadcastss_ps(Halves(p));
    return {d, d};
  }
  static SLUICE_INLINE void Halves2(const uint8_t* p, F& first, F& second) {
    const __m128 h = Halves(p);
    const __m256 d = _mm256_broadcastss_ps(h), m = _mm256_broadcastss_ps(_mm_movehdup_ps(h));
    first = {d, d};
    second = {m, m};
  }
  static SLUICE_INLINE __m128i Load128(const uint8_t* p) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  }
  static SLUICE_INLINE F LoadHalf(const uint8_t* p) {
    return {_mm256_cvtph_ps(Load128(p)), _mm256_cvtph_ps(Load128(p + 16))};
  }
  static SLUICE_INLINE __m256 Bf16(__m128i bits) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
  }
  static SLUICE_INLINE void LoadBf16Pairs8(const uint16_t* p, __m256& first, __m256& second) {
    const __m256i pairs = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    first = _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16));
    second = _mm256_castsi256_ps(_mm256_and_si256(pairs, _mm256_set1_epi32(int(0xffff0000u))));
  }
  static SLUICE_INLINE void LoadBf16Pairs(const uint16_t* p, F& first, F& second) {
    LoadBf16Pairs8(p, first.lo, second.lo);
    LoadBf16Pairs8(p + 16, first.hi, second.hi);
  }
  static SLUICE_INLINE F LoadBf16(const uint8_t* p) { return {Bf16(Load128(p)), Bf16(Load128(p + 16))}; }
};

}  // namespace sluice::kernels::cpu::avx2
