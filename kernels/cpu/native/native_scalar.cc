// native mode in plain C++: the definition that the other instruction sets are held against. See native_table.h.
#include <utility>

#include "kernels/cpu/native/native_inl.h"
#include "kernels/cpu/vec_scalar.h"

namespace sluice::kernels::cpu {
namespace {

using scalar::Simd;

struct Plain {
  static constexpr int kRows = 1;
  static constexpr bool kCentredBytes = false;

  template <BlockForm kForm>
  static SLUICE_INLINE const uint8_t* Load(const uint8_t* codes) {
    return codes;
  }
  template <BlockForm kForm>
  static SLUICE_INLINE Simd::I Sum(const uint8_t* codes, const int8_t* x) {
    Simd::I sums = {};
    for (int e = 0; e < kNativeBlock; ++e) {
      for (int n = 0; n < kPanelRows; ++n) {
        int code = 0;
        if constexpr (kForm == BlockForm::kBytes) {
          code = codes[e / 4 * 64 + n * 4 + e % 4];
        } else {
          code = codes[e % 16 / 4 * 64 + n * 4 + e % 4] >> (e / 16 * 4) & 15;
        }
        sums[n] += code * int(x[e]);
      }
    }
    return sums;
  }
};

}  // namespace

constinit const NativeTable kScalarNative = {
    .round = &RoundBlocks<Simd>,
    .matmul = &MultiplyPanels<Simd, NativeTiles<Simd, Plain>, BlockRows, NativePanels>,
    .gate_up = &MultiplyGateUp<Simd, NativeTiles<Simd, Plain>, BlockRows, NativePanels>,
};

}  // namespace sluice::kernels::cpu
