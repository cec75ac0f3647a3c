// Dot products of bytes with AVX-512 VNNI, for matmul_inl.h. Included only by files compiled for it.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "kernels/cpu/int8/int8_table.h"
#include "kernels/cpu/simd_macros.h"

namespace sluice::kernels::cpu {
namespace {  // a copy for each file: they are compiled for different machines

struct Vnni {
  static constexpr int kRows = 6;  // 6 x 4 sums + 4 weights + 2 activations of 32 registers

  // Keeps a value in a register: the compiler would rather fold its load into each of its uses, and loads are scarcer.
  static SLUICE_INLINE __m512i Keep(__m512i v) {
    asm("" : "+v"(v));
    return v;
  }
  static SLUICE_INLINE __m512i Broadcast4(const uint8_t* p) {
    int32_t four;
    std::memcpy(&four, p, sizeof four);
    return _mm512_set1_epi32(four);
  }

  template <int kM, int kN>
  static SLUICE_INLINE void Dot(const int8_t* const* w, const uint8_t* x, int64_t k, __m512i (&sums)[kM][kN]) {
    __m512i acc[kM][kN];  // a copy, so that it stays in registers
    SLUICE_UNROLL
    for (int i = 0; i < kM; ++i) {
      SLUICE_UNROLL
      for (int j = 0; j < kN; ++j) acc[i][j] = _mm512_setzero_si512();
    }
    const int8_t* panel[kN];
    SLUICE_UNROLL
    for (int j = 0; j < kN; ++j) panel[j] = w[j];
    for (int64_t q = 0; q < k; q += 4) {
      __m512i wv[kN];
      SLUICE_UNROLL
      for (int j = 0; j < kN; ++j) wv[j] = Keep(_mm512_loadu_si512(panel[j] + q * kPanelRows));
      SLUICE_UNROLL
      for (int i = 0; i < kM; ++i) {
        const __m512i xv = Broadcast4(x + i * k + q);
        SLUICE_UNROLL
        for (int j = 0; j < kN; ++j) acc[i][j] = _mm512_dpbusd_epi32(acc[i][j], xv, wv[j]);
      }
    }
    SLUICE_UNROLL
    for (int i = 0; i < kM; ++i) {
      SLUICE_UNROLL
      for (int j = 0; j < kN; ++j) sums[i][j] = Keep(acc[i][j]);
    }
  }

  static SLUICE_INLINE __m512i Dot1(const int8_t* w, const uint8_t* x, int64_t k) {
    __m512i sums[8];
    SLUICE_UNROLL
    for (int i = 0; i < 8; ++i) sums[i] = _mm512_setzero_si512();
    for (int64_t q = 0; q < k; q += 32) {
      SLUICE_UNROLL
      for (int i = 0; i < 8; ++i) {
        const __m512i wv = _mm512_loadu_si512(w + (q + 4 * i) * kPanelRows);
        sums[i] = _mm512_dpbusd_epi32(sums[i], Broadcast4(x + q + 4 * i), wv);
      }
    }
    SLUICE_UNROLL
    for (int d = 4; d >= 1; d /= 2) {
      SLUICE_UNROLL
      for (int i = 0; i < d; ++i) sums[i] = _mm512_add_epi32(sums[i], sums[i + d]);
    }
    return sums[0];
  }
};

}  // namespace
}  // namespace sluice::kernels::cpu
