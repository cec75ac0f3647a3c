// The kernels of native mode (numerics id "native.1") of one instruction set: matrices keep about the bits that the
// file has, so that a step of few rows reads least.
//
// The arithmetic, the same bits on every instruction set:
//  - Weights: blocks of 32 along k, w = d * (code - centre) or d * code + m (BlockForm). Q4_0, Q4_1, Q4_K and Q8_0 are
//    kept exactly; every other type is rounded to kBytes when it is packed.
//  - Activations: blocks of 32, each rounded to even in [-127, 127] by its own scale s = max|x| / 127.
//  - y = one chain over ascending blocks, acc = fma(float(isum), d * s, acc), where isum = sum((code - centre) * x) is
//    exact, then, where there is an m, acc = fma(m, s * float(sum(x)), acc).
//
// Packed panels (panels.h), per block: codes [8 quads of k][16 rows][4 bytes], or with nibbles [4][16][4], where the
// low nibbles of vector j are quad j and the high ones quad j + 4; then apart from them d [16 rows], m [16 rows].
//
// Only plain structs here, as in kernel_table.h.
#pragma once

#include <cstdint>

#include "kernels/cpu/panels.h"

namespace sluice::kernels::cpu {

inline constexpr int kNativeBlock = 32;

enum class BlockForm : uint8_t {
  kNibbles,      // d f16, centre 8: Q4_0
  kNibblesMin,   // d and m f16: Q4_1
  kNibblesMinF,  // d and m f32: Q4_K, whose scales are products
  kBytes,        // d f16, centre 128: Q8_0, and what is rounded
};
inline constexpr int kBlockForms = 4;

__attribute__((always_inline)) constexpr int64_t CodeBytes(BlockForm form) {  // of a block of sixteen rows
  return form == BlockForm::kBytes ? 512 : 256;
}
__attribute__((always_inline)) constexpr int64_t ScaleBytes(BlockForm form) {
  return form == BlockForm::kNibblesMinF ? 128 : form == BlockForm::kNibblesMin ? 64 : 32;
}

struct NativePanels {
  BlockForm form;
  const uint8_t* codes;   // [panels][blocks][CodeBytes]
  const uint8_t* scales;  // [panels][blocks][ScaleBytes]
  int64_t blocks;
  int64_t rows;  // of the matrix
};

struct BlockRows {
  const int8_t* data;        // [rows][blocks * 32]
  const float* scales;       // [rows][blocks] s
  const int32_t* sums;       // [rows][blocks] of data
  const float* scaled_sums;  // [rows][blocks] s * float(sum)
  int64_t rows;
};

struct NativeTable {
  // Rounds x [blocks * 32] to data, scales, sums and scaled_sums of one row.
  void (*round)(const float* x, int64_t blocks, int8_t* data, float* scales, int32_t* sums, float* scaled_sums);

  // y (+)= x Wᵀ (+ bias) for the panels [begin, end).
  void (*matmul)(const BlockRows& x, const NativePanels& w, const ProductOutput& out, int64_t begin, int64_t end);

  // h = f(x Gᵀ) * (x Uᵀ) for the panels [begin, end) of gate and up.
  void (*gate_up)(const BlockRows& x, const NativePanels& gate, const NativePanels& up, GateFunction f, float* h,
                  int64_t ld, int64_t begin, int64_t end);
};

extern const NativeTable kScalarNative;
extern const NativeTable kAvx2Native;
extern const NativeTable kAvx512Native;

}  // namespace sluice::kernels::cpu
