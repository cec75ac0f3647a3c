// native mode with AVX-512 VNNI. See native_table.h.
#include <immintrin.h>

#include <cstring>
#include <utility>

#include "kernels/cpu/native/native_inl.h"
#include "kernels/cpu/vec_avx512.h"

namespace sluice::kernels::cpu {
namespace {

using avx512::Simd;

struct Codes {
  __m512i quad[8];  // four bytes of sixteen rows
};

struct BlockVnni {
  static constexpr int kRows = 8;  // 8 codes + 2 scales + 8 results + 8 sums of 32 registers
  static constexpr bool kCentredBytes = false;

  static SLUICE_INLINE __m512i Keep(__m512i v) {
    asm("" : "+v"(v));
    return v;
  }

  template <BlockForm kForm>
  static SLUICE_INLINE Codes Load(const uint8_t* codes) {
    Codes c;
    if constexpr (kForm == BlockForm::kBytes) {
      SLUICE_UNROLL
      for (int q = 0; q < 8; ++q) c.quad[q] = Keep(_mm512_loadu_si512(codes + q * 64));
    } else {
      const __m512i low = _mm512_set1_epi8(15);
      SLUICE_UNROLL
      for (int q = 0; q < 4; ++q) {
        const __m512i both = _mm512_loadu_si512(codes + q * 64);
        c.quad[q] = Keep(_mm512_and_si512(both, low));
        c.quad[q + 4] = Keep(_mm512_and_si512(_mm512_srli_epi16(both, 4), low));
      }
    }
    return c;
  }
  template <BlockForm kForm>
  static SLUICE_INLINE __m512i Sum(const Codes& c, const int8_t* x) {
    __m512i sums = _mm512_setzero_si512();
    SLUICE_UNROLL
    for (int q = 0; q < 8; ++q) {
      int32_t four;
      std::memcpy(&four, x + q * 4, sizeof four);
      sums = _mm512_dpbusd_epi32(sums, c.quad[q], _mm512_set1_epi32(four));
    }
    return sums;
  }
};

}  // namespace

constinit const NativeTable kAvx512Native = {
    .round = &RoundBlocks<Simd>,
    .matmul = &MultiplyPanels<Simd, NativeTiles<Simd, BlockVnni>, BlockRows, NativePanels>,
    .gate_up = &MultiplyGateUp<Simd, NativeTiles<Simd, BlockVnni>, BlockRows, NativePanels>,
};

}  // namespace sluice::kernels::cpu
