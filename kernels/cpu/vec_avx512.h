// Sixteen virtual lanes as one 512-bit register. Included only by files compiled with AVX-512F, BW, VL and DQ.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "kernels/cpu/simd_macros.h"

namespace sluice::kernels::cpu::avx512 {

struct Simd {
  using F = __m512;
  using I = __m512i;
  using H = __m256;
  static constexpr bool kHasLookup = true;
  static constexpr int kDotRows = 3;  // 3 x 8 accumulators + 3 x + 1 w of 32 registers
  static constexpr int kPvRows = 6;   // 6 x 4 accumulators + 4 v
  static constexpr int kPvVectors = 4;
  static constexpr int kScoreRows = 6;  // 6 x 4 accumulators + 4 keys
  static constexpr int kScoreVectors = 4;
  static constexpr int kBf16Rows = 5;  // 5 x 4 accumulators + 8 weights + x of 32 registers
  static constexpr int kBf16Panels = 4;
  static constexpr int kGemvRows = 4;

  // What one register of a register tile holds: all sixteen lanes.
  using P = __m512;
  static constexpr int kParts = 1;
  static constexpr int kPartColumns = 8;
  static SLUICE_INLINE P ZeroP() { return _mm512_setzero_ps(); }
  static SLUICE_INLINE P LoadP(const float* p, int) { return _mm512_loadu_ps(p); }
  // Keeps a value in a register: the compiler would rather fold its load into each of its uses, and loads are scarcer.
  static SLUICE_INLINE P Keep(P p) {
    asm("" : "+v"(p));
    return p;
  }
  static SLUICE_INLINE F KeepAll(F f) { return Keep(f); }
  static SLUICE_INLINE P FmaP(P a, P b, P c) { return _mm512_fmadd_ps(a, b, c); }
  static SLUICE_INLINE void SetPart(F& f, int, P p) { f = p; }

  static SLUICE_INLINE F Zero() { return _mm512_setzero_ps(); }
  static SLUICE_INLINE F Set1(float x) { return _mm512_set1_ps(x); }
  static SLUICE_INLINE F Iota() { return _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15); }
  static SLUICE_INLINE F Load(const float* p) { return _mm512_loadu_ps(p); }
  static SLUICE_INLINE F LoadPartial(const float* p, int n) {
    return _mm512_maskz_loadu_ps(__mmask16((1u << n) - 1), p);
  }
  static SLUICE_INLINE void Store(float* p, F a) { _mm512_storeu_ps(p, a); }
  static SLUICE_INLINE void StorePartial(float* p, F a, int n) {
    _mm512_mask_storeu_ps(p, __mmask16((1u << n) - 1), a);
  }

  static SLUICE_INLINE F Add(F a, F b) { return _mm512_add_ps(a, b); }
  static SLUICE_INLINE F Sub(F a, F b) { return _mm512_sub_ps(a, b); }
  static SLUICE_INLINE F Mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static SLUICE_INLINE F Div(F a, F b) { return _mm512_div_ps(a, b); }
  static SLUICE_INLINE F Fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static SLUICE_INLINE F Max(F a, F b) { return _mm512_max_ps(a, b); }
  static SLUICE_INLINE F Min(F a, F b) { return _mm512_min_ps(a, b); }
  static SLUICE_INLINE F KeepWhereGe(F a, F x, F bound) {
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, bound, _CMP_GE_OQ), a);
  }
  static SLUICE_INLINE F ScaleByPow2(F a, F n) {
    const I bits = _mm512_slli_epi32(_mm512_add_epi32(_mm512_cvttps_epi32(n), _mm512_set1_epi32(127)), 23);
    return _mm512_mul_ps(a, _mm512_castsi512_ps(bits));
  }

  static SLUICE_INLINE __m128 Fold128(__m256 a) {
    return _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  }
  static SLUICE_INLINE float ReduceAdd(F a) {
    const __m128 s = Fold128(_mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1)));
    const __m128 t = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(t, _mm_movehdup_ps(t)));
  }
  static SLUICE_INLINE float ReduceMax(F a) {
    const __m256 h = _mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    const __m128 s = _mm_max_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
    const __m128 t = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(t, _mm_movehdup_ps(t)));
  }
  template <int kDistance>
  static SLUICE_INLINE F Butterfly(F a) {
    F swapped;
    if constexpr (kDistance == 1) swapped = _mm512_permute_ps(a, 0xB1);
    if constexpr (kDistance == 2) swapped = _mm512_permute_ps(a, 0x4E);
    if constexpr (kDistance == 4) swapped = _mm512_shuffle_f32x4(a, a, 0xB1);
    if constexpr (kDistance == 8) swapped = _mm512_shuffle_f32x4(a, a, 0x4E);
    constexpr int kMask = kDistance == 1 ? 0xAAAA : kDistance == 2 ? 0xCCCC : kDistance == 4 ? 0xF0F0 : 0xFF00;
    const F sign = _mm512_mask_blend_ps(__mmask16(kMask), _mm512_set1_ps(1.0f), _mm512_set1_ps(-1.0f));
    return _mm512_fmadd_ps(a, sign, swapped);  // the product is exact: one rounding, that of the sum
  }
  static SLUICE_INLINE F FlipSigns(F a, uint32_t bits) {
    return _mm512_mask_xor_ps(a, __mmask16(bits), a, _mm512_set1_ps(-0.0f));
  }
  static SLUICE_INLINE F Abs(F a) { return _mm512_abs_ps(a); }
  static SLUICE_INLINE void StoreU8(uint8_t* p, F a) {
    const I rounded = _mm512_add_epi32(_mm512_cvtps_epi32(a), _mm512_set1_epi32(128));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(rounded));
  }
  static SLUICE_INLINE I ZeroI() { return _mm512_setzero_si512(); }
  static SLUICE_INLINE I LoadI(const int32_t* p) { return _mm512_loadu_si512(p); }
  static SLUICE_INLINE I Set1I(int32_t x) { return _mm512_set1_epi32(x); }
  static SLUICE_INLINE I SubI(I a, I b) { return _mm512_sub_epi32(a, b); }
  static SLUICE_INLINE float First(F a) { return _mm512_cvtss_f32(a); }

  // The tree of ReduceAdd on eight vectors at once: lanes of two vectors are brought side by side at each distance.
  static SLUICE_INLINE F Join8(F a, F b) {  // [a at distance 8 | b at distance 8]
    return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xEE));
  }
  static SLUICE_INLINE F Join4(F a, F b) {  // four lanes each of a's two sums, then b's
    return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xDD));
  }
  static SLUICE_INLINE H Reduce8(const F* a) {
    const F p = Join4(Join8(a[0], a[1]), Join8(a[2], a[3]));  // 128-bit group g holds a[g]
    const F q = Join4(Join8(a[4], a[5]), Join8(a[6], a[7]));  // and a[4 + g]
    // Group g: a[g] lanes 0, 1 and a[4 + g] lanes 0, 1, plus the same of lanes 2, 3.
    const F r = _mm512_add_ps(_mm512_shuffle_ps(p, q, 0x44), _mm512_shuffle_ps(p, q, 0xEE));
    const F s = _mm512_add_ps(r, _mm512_movehdup_ps(r));  // group g: a[g] in lane 0, a[4 + g] in lane 2
    const I order = _mm512_setr_epi32(0, 4, 8, 12, 2, 6, 10, 14, 0, 0, 0, 0, 0, 0, 0, 0);
    return _mm512_castps512_ps256(_mm512_permutexvar_ps(order, s));
  }
  static SLUICE_INLINE H LoadH(const float* p) { return _mm256_loadu_ps(p); }
  static SLUICE_INLINE void StoreH(float* p, H a) { _mm256_storeu_ps(p, a); }
  static SLUICE_INLINE H AddH(H a, H b) { return _mm256_add_ps(a, b); }

  static SLUICE_INLINE __m128i Load128(const uint8_t* p) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  }
  static SLUICE_INLINE I ZextU8(const uint8_t* p) { return _mm512_cvtepu8_epi32(Load128(p)); }
  static SLUICE_INLINE I SextI8(const uint8_t* p) { return _mm512_cvtepi8_epi32(Load128(p)); }
  static SLUICE_INLINE I And(I a, int mask) { return _mm512_and_si512(a, _mm512_set1_epi32(mask)); }
  static SLUICE_INLINE I Or(I a, I b) { return _mm512_or_si512(a, b); }
  static SLUICE_INLINE I Shr(I a, int n) { return _mm512_srl_epi32(a, _mm_cvtsi32_si128(n)); }
  static SLUICE_INLINE I Shl(I a, int n) { return _mm512_sll_epi32(a, _mm_cvtsi32_si128(n)); }
  static SLUICE_INLINE I Bit16(uint32_t bits) { return _mm512_maskz_set1_epi32(__mmask16(bits), 16); }
  static SLUICE_INLINE F ToF(I a) { return _mm512_cvtepi32_ps(a); }
  // table[index & 15] per lane.
  static SLUICE_INLINE F Lookup(F table, I index) { return _mm512_permutexvar_ps(index, table); }

  static SLUICE_INLINE float Half(const uint8_t* p) {
    uint16_t bits;
    std::memcpy(&bits, p, sizeof bits);
    return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(bits)));
  }
  // The half-float at p in all lanes; with Halves2, and the one after it. Reads eight bytes.
  static SLUICE_INLINE __m128 Halves(const uint8_t* p) {
    return _mm_cvtph_ps(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  }
  static SLUICE_INLINE F HalfSplat(const uint8_t* p) { return _mm512_broadcastss_ps(Halves(p)); }
  static SLUICE_INLINE void Halves2(const uint8_t* p, F& first, F& second) {
    const __m128 h = Halves(p);
    first = _mm512_broadcastss_ps(h);
    second = _mm512_broadcastss_ps(_mm_movehdup_ps(h));
  }
  static SLUICE_INLINE F LoadHalf(const uint8_t* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static SLUICE_INLINE void LoadBf16Pairs(const uint16_t* p, F& first, F& second) {
    const I pairs = _mm512_loadu_si512(p);
    first = _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
    second = _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32(int(0xffff0000u))));
  }
  static SLUICE_INLINE F LoadBf16(const uint8_t* p) {
    const I wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
  }
};

}  // namespace sluice::kernels::cpu::avx512
