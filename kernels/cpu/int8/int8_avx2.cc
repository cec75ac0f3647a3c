// int8 mode with AVX2. See int8_table.h. Bytes are widened to 16 bits: the byte products of AVX2 saturate.
#include <immintrin.h>

#include <cstring>

#include "kernels/cpu/int8/int8_table.h"
#include "kernels/cpu/int8/matmul_inl.h"
#include "kernels/cpu/int8/rotation_inl.h"
#include "kernels/cpu/int8/round_inl.h"
#include "kernels/cpu/vec_avx2.h"

namespace sluice::kernels::cpu {
namespace {

using avx2::Simd;
using avx2::TwoI;

struct Widened {
  static constexpr int kRows = 2;  // 2 x 4 sums + 4 weights + 2 activations of 16 registers

  // Four quads of k of four weight rows, as 16 bits: quarter of a panel's vector.
  static SLUICE_INLINE __m256i Quarter(const int8_t* p) {
    return _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  // Four activations as 16 bits, again and again.
  static SLUICE_INLINE __m256i Broadcast4(const uint8_t* p) {
    int32_t four;
    std::memcpy(&four, p, sizeof four);
    return _mm256_broadcastq_epi64(_mm_cvtepu8_epi16(_mm_cvtsi32_si128(four)));
  }
  // Neighbours of four vectors of (two halves of a sum) x 4, added and in order.
  static SLUICE_INLINE TwoI Join(const __m256i (&part)[4]) {
    const auto two = [](__m256i a, __m256i b)
                         SLUICE_LAMBDA { return _mm256_permute4x64_epi64(_mm256_hadd_epi32(a, b), 0xD8); };
    return {two(part[0], part[1]), two(part[2], part[3])};
  }

  template <int kM, int kN>
  static SLUICE_INLINE void Dot(const int8_t* const* w, const uint8_t* x, int64_t k, TwoI (&sums)[kM][kN]) {
    SLUICE_UNROLL
    for (int j = 0; j < kN; ++j) {
      __m256i part[kM][4];
      SLUICE_UNROLL
      for (int i = 0; i < kM; ++i) {
        SLUICE_UNROLL
        for (int c = 0; c < 4; ++c) part[i][c] = _mm256_setzero_si256();
      }
      for (int64_t q = 0; q < k; q += 4) {
        __m256i xv[kM];
        SLUICE_UNROLL
        for (int i = 0; i < kM; ++i) xv[i] = Broadcast4(x + i * k + q);
        SLUICE_UNROLL
        for (int c = 0; c < 4; ++c) {
          const __m256i wv = Quarter(w[j] + q * kPanelRows + c * 16);
          SLUICE_UNROLL
          for (int i = 0; i < kM; ++i) part[i][c] = _mm256_add_epi32(part[i][c], _mm256_madd_epi16(xv[i], wv));
        }
      }
      SLUICE_UNROLL
      for (int i = 0; i < kM; ++i) sums[i][j] = Join(part[i]);
    }
  }

  static SLUICE_INLINE TwoI Dot1(const int8_t* w, const uint8_t* x, int64_t k) {
    TwoI sums[1][1];
    Dot<1, 1>(&w, x, k, sums);
    return sums[0][0];
  }
};

}  // namespace

constinit const Int8Table kAvx2Int8 = {
    .rotate = &Rotate<Simd>,
    .round = &RoundRow<Simd>,
    .matmul = &Int8Matmul<Simd, Widened>,
    .gate_up = &Int8GateUp<Simd, Widened>,
};

}  // namespace sluice::kernels::cpu
