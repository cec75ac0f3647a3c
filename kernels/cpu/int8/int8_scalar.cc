// int8 mode in plain C++: the definition that the other instruction sets are held against. See int8_table.h.
#include "kernels/cpu/int8/int8_table.h"
#include "kernels/cpu/int8/matmul_inl.h"
#include "kernels/cpu/int8/rotation_inl.h"
#include "kernels/cpu/int8/round_inl.h"
#include "kernels/cpu/vec_scalar.h"

namespace sluice::kernels::cpu {
namespace {

using scalar::Simd;

struct Plain {
  static constexpr int kRows = 1;

  static SLUICE_INLINE Simd::I Dot1(const int8_t* w, const uint8_t* x, int64_t k) {
    Simd::I sums = {};
    for (int64_t q = 0; q < k; q += 4) {
      for (int n = 0; n < kPanelRows; ++n) {
        for (int i = 0; i < 4; ++i) sums[n] += int(x[q + i]) * int(w[q * kPanelRows + n * 4 + i]);
      }
    }
    return sums;
  }

  template <int kM, int kN>
  static SLUICE_INLINE void Dot(const int8_t* const* w, const uint8_t* x, int64_t k, Simd::I (&sums)[kM][kN]) {
    for (int i = 0; i < kM; ++i) {
      for (int j = 0; j < kN; ++j) sums[i][j] = Dot1(w[j], x + i * k, k);
    }
  }
};

}  // namespace

constinit const Int8Table kScalarInt8 = {
    .rotate = &Rotate<Simd>,
    .round = &RoundRow<Simd>,
    .matmul = &Int8Matmul<Simd, Plain>,
    .gate_up = &Int8GateUp<Simd, Plain>,
};

}  // namespace sluice::kernels::cpu
