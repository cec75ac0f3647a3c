// native mode with AVX2. See native_table.h.
//
// Products of nibbles fit sixteen bits: 8 quads * 2 * 15 * 127 = 30,480. Those of bytes are made of |code - 128| and x
// with its sign: 2 * 128 * 127 = 32,512 fits, but no sum of two.
#include <immintrin.h>

#include <cstring>
#include <utility>

#include "kernels/cpu/native/native_inl.h"
#include "kernels/cpu/vec_avx2.h"

namespace sluice::kernels::cpu {
namespace {

using avx2::Simd;
using avx2::TwoI;

struct Codes {
  __m256i quad[8][2];  // four bytes of eight rows
};

struct BlockBytes {
  static constexpr int kRows = 4;
  static constexpr bool kCentredBytes = true;

  template <BlockForm kForm>
  static SLUICE_INLINE Codes Load(const uint8_t* codes) {
    Codes c;
    const __m256i low = _mm256_set1_epi8(15), centre = _mm256_set1_epi8(-128);
    SLUICE_UNROLL
    for (int half = 0; half < 2; ++half) {
      SLUICE_UNROLL
      for (int q = 0; q < (kForm == BlockForm::kBytes ? 8 : 4); ++q) {
        const __m256i v = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes + q * 64 + half * 32));
        if constexpr (kForm == BlockForm::kBytes) {
          c.quad[q][half] = _mm256_xor_si256(v, centre);
        } else {
          c.quad[q][half] = _mm256_and_si256(v, low);
          c.quad[q + 4][half] = _mm256_and_si256(_mm256_srli_epi16(v, 4), low);
        }
      }
    }
    return c;
  }
  template <BlockForm kForm>
  static SLUICE_INLINE __m256i Half(const Codes& c, int half, const int8_t* x) {
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i sums = _mm256_setzero_si256();
    SLUICE_UNROLL
    for (int q = 0; q < 8; ++q) {
      int32_t four;
      std::memcpy(&four, x + q * 4, sizeof four);
      const __m256i xv = _mm256_set1_epi32(four), code = c.quad[q][half];
      if constexpr (kForm == BlockForm::kBytes) {
        const __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(code), _mm256_sign_epi8(xv, code));
        sums = _mm256_add_epi32(sums, _mm256_madd_epi16(pairs, ones));
      } else {
        sums = _mm256_add_epi16(sums, _mm256_maddubs_epi16(code, xv));
      }
    }
    return kForm == BlockForm::kBytes ? sums : _mm256_madd_epi16(sums, ones);
  }
  template <BlockForm kForm>
  static SLUICE_INLINE TwoI Sum(const Codes& c, const int8_t* x) {
    return {Half<kForm>(c, 0, x), Half<kForm>(c, 1, x)};
  }
};

}  // namespace

constinit const NativeTable kAvx2Native = {
    .round = &RoundBlocks<Simd>,
    .matmul = &MultiplyPanels<Simd, NativeTiles<Simd, BlockBytes>, BlockRows, NativePanels>,
    .gate_up = &MultiplyGateUp<Simd, NativeTiles<Simd, BlockBytes>, BlockRows, NativePanels>,
};

}  // namespace sluice::kernels::cpu
