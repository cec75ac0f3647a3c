// The kernels of bf16 mode (numerics id "bf16w.1") of one instruction set: matrices rounded to bf16, everything else in
// f32.
//
// The arithmetic, the same bits on every instruction set: each product is one chain of fma over ascending k, of the
// activation in f32 and the weight rounded to nearest even. (Instructions that multiply pairs of bf16 round otherwise
// on each CPU, and are no faster than fma where they were measured.)
//
// Packed panels (panels.h): [k / 2][16 rows][2], k padded to a multiple of two with a zero.
//
// Only plain structs here, as in kernel_table.h.
#pragma once

#include <cstdint>

#include "kernels/cpu/panels.h"

namespace sluice::kernels::cpu {

struct Bf16Panels {
  const uint16_t* data;  // [panels][k / 2][16][2]
  int64_t k;             // padded
  int64_t rows;          // of the matrix
};

struct FloatRows {
  const float* data;  // [rows][k], zero in the padding
  int64_t k;          // padded
  int64_t rows;
};

struct Bf16Table {
  // y (+)= x Wᵀ (+ bias) for the panels [begin, end).
  void (*matmul)(const FloatRows& x, const Bf16Panels& w, const ProductOutput& out, int64_t begin, int64_t end);

  // h = f(x Gᵀ) * (x Uᵀ) for the panels [begin, end) of gate and up.
  void (*gate_up)(const FloatRows& x, const Bf16Panels& gate, const Bf16Panels& up, GateFunction f, float* h,
                  int64_t ld, int64_t begin, int64_t end);
};

extern const Bf16Table kScalarBf16;
extern const Bf16Table kAvx2Bf16;
extern const Bf16Table kAvx512Bf16;

}  // namespace sluice::kernels::cpu
