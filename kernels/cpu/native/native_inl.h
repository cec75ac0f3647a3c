// The kernels of native_table.h over the dot products D of one instruction set:
//   D::kRows                         most activation rows of a register tile
//   D::kCentredBytes                 sums of kBytes are of code - 128 already, not of code
//   D::Load<form>(codes)             the codes of a block, unpacked
//   D::Sum<form>(codes, x)           sixteen sums over the 32 products with x
// A tile is one panel and a few rows: its codes are unpacked once for all of them, and its results pass through memory,
// so that what is done with them need not know the form.
#pragma once

#include <cstdint>
#include <utility>

#include "kernels/cpu/math_inl.h"
#include "kernels/cpu/native/native_table.h"
#include "kernels/cpu/panels_inl.h"
#include "kernels/cpu/simd_macros.h"

namespace sluice::kernels::cpu {

// What is not a number becomes -127; a block with an infinity gives zeros and -127: garbage stays in its own row.
template <class S>
void RoundBlocks(const float* x, int64_t blocks, int8_t* data, float* scales, int32_t* sums, float* scaled_sums) {
  const auto low = S::Set1(-127.0f), high = S::Set1(127.0f);
  for (int64_t b = 0; b < blocks; ++b) {
    const auto first = S::Load(x + b * 32), second = S::Load(x + b * 32 + 16);
    const float largest = S::ReduceMax(S::Max(S::Abs(first), S::Max(S::Abs(second), S::Zero())));
    const auto inverse = S::Set1(largest > 0.0f ? 127.0f / largest : 0.0f);
    uint8_t bytes[32];  // 128 + q
    S::StoreU8(bytes, S::Min(S::Max(S::Mul(first, inverse), low), high));
    S::StoreU8(bytes + 16, S::Min(S::Max(S::Mul(second, inverse), low), high));
    int32_t sum = 0;
    for (int i = 0; i < 32; ++i) {
      const int8_t q = int8_t(bytes[i] ^ 0x80);
      data[b * 32 + i] = q;
      sum += q;
    }
    scales[b] = largest / 127.0f;
    sums[b] = sum;
    scaled_sums[b] = scales[b] * float(sum);
  }
}

template <class S, BlockForm kForm>
SLUICE_INLINE typename S::F LoadScale(const uint8_t* scales, int which) {
  if constexpr (kForm == BlockForm::kNibblesMinF) {
    return S::Load(reinterpret_cast<const float*>(scales) + which * kPanelRows);
  } else {
    return S::LoadHalf(scales + which * 2 * kPanelRows);
  }
}

// y [kM][16] of rows m to m + kM and panel p.
template <class S, class D, BlockForm kForm, int kM>
void NativeTile(const BlockRows& x, const NativePanels& w, int64_t m, int64_t p, float* y) {
  constexpr bool kMin = kForm == BlockForm::kNibblesMin || kForm == BlockForm::kNibblesMinF;
  constexpr int kCentre = kMin ? 0 : kForm == BlockForm::kBytes ? (D::kCentredBytes ? 0 : 128) : 8;
  const uint8_t* codes = w.codes + p * w.blocks * CodeBytes(kForm);
  const uint8_t* scales = w.scales + p * w.blocks * ScaleBytes(kForm);
  typename S::F acc[kM];
  SLUICE_UNROLL
  for (int i = 0; i < kM; ++i) acc[i] = S::Zero();
  for (int64_t b = 0; b < w.blocks; ++b) {
    const auto block = D::template Load<kForm>(codes + b * CodeBytes(kForm));
    const auto d = LoadScale<S, kForm>(scales + b * ScaleBytes(kForm), 0);
    typename S::F minimum = S::Zero();
    if constexpr (kMin) minimum = LoadScale<S, kForm>(scales + b * ScaleBytes(kForm), 1);
    SLUICE_UNROLL
    for (int i = 0; i < kM; ++i) {
      const int64_t at = (m + i) * w.blocks + b;
      auto sum = D::template Sum<kForm>(block, x.data + at * 32);
      if constexpr (kCentre != 0) sum = S::SubI(sum, S::Set1I(kCentre * x.sums[at]));
      acc[i] = S::Fma(S::ToF(sum), S::Mul(d, S::Set1(x.scales[at])), acc[i]);
      if constexpr (kMin) acc[i] = S::Fma(minimum, S::Set1(x.scaled_sums[at]), acc[i]);
    }
  }
  SLUICE_UNROLL
  for (int i = 0; i < kM; ++i) S::Store(y + i * kPanelRows, acc[i]);
}

using NativeTileFn = void (*)(const BlockRows& x, const NativePanels& w, int64_t m, int64_t p, float* y);

template <class S, class D>
struct NativeTiles {
  static constexpr int kRows = D::kRows;
  static constexpr int kPanels = 1;

  static SLUICE_INLINE void Tile(const BlockRows& x, const NativePanels& w, int64_t m, int rows, int64_t p, int,
                                 float* y) {
    Of(w.form, rows)(x, w, m, p, y);
  }

 private:
  template <BlockForm kForm, int... kRowsLess1>
  static SLUICE_INLINE NativeTileFn Pick(int rows, std::integer_sequence<int, kRowsLess1...>) {
    static constexpr NativeTileFn kFns[] = {&NativeTile<S, D, kForm, kRowsLess1 + 1>...};
    return kFns[rows - 1];
  }
  static SLUICE_INLINE NativeTileFn Of(BlockForm form, int rows) {
    using Rows = std::make_integer_sequence<int, kRows>;
    switch (form) {
      case BlockForm::kNibbles:
        return Pick<BlockForm::kNibbles>(rows, Rows{});
      case BlockForm::kNibblesMin:
        return Pick<BlockForm::kNibblesMin>(rows, Rows{});
      case BlockForm::kNibblesMinF:
        return Pick<BlockForm::kNibblesMinF>(rows, Rows{});
      default:
        return Pick<BlockForm::kBytes>(rows, Rows{});
    }
  }
};

}  // namespace sluice::kernels::cpu
