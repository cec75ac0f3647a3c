// The kernels of int8 mode (numerics id "int8h.1") of one instruction set, beside those of kernel_table.h.
//
// The arithmetic, the same bits on every instruction set:
//  - Weights: each row is dequantised (DequantizeRow), rotated (rotation.h) and rounded to even in [-127, 127] by its
//    own scale, max|w| / 127.
//  - Activations: each row likewise. Kept as bytes 128 + q, which is what unsigned-by-signed instructions want.
//  - Products: int32 over the whole of k, exact in any order (|sum| <= 255 * 127 * k: k <= kMostInt8Columns), the 128s
//    taken out.
//  - y = float(sum) * (activation scale * weight scale), where the weight scale holds the rotation's gain.
//
// Packed weights are panels of sixteen rows: [k / 4][16 rows][4 bytes], k padded with zeros to kInt8Pad; one layout for
// VNNI registers (a vector is four k of sixteen rows) and for AMX tiles (sixteen vectors).
//
// Only plain structs here, as in kernel_table.h.
#pragma once

#include <cstdint>

#include "kernels/cpu/int8/rotation.h"
#include "kernels/cpu/panels.h"

namespace sluice::kernels::cpu {

inline constexpr int64_t kMostInt8Columns = 65536;
inline constexpr int kInt8Pad = 64;  // k of packed weights and of quantised rows is a multiple of this

struct Int8Panels {
  const int8_t* data;      // [panels][k / 4][16][4]
  const float* scales;     // [panels * 16]
  const int32_t* offsets;  // [panels * 16] 128 * (sum of the row)
  int64_t k;               // padded
  int64_t rows;            // of the matrix: panels * 16 rounded down to what there is
};

struct Int8Rows {
  const uint8_t* data;  // [rows][k] 128 + q
  const float* scales;  // [rows]
  int64_t rows;
};

struct Int8Table {
  // x [rotation.vectors][16], zero past the row's columns, rotated in place.
  void (*rotate)(const Rotation& rotation, float* x);

  // Rounds x [vectors][16] to bytes [padded k]; returns max|x| / 127.
  float (*round)(const float* x, int64_t vectors, uint8_t* bytes, int64_t padded_k);

  // y (+)= x Wᵀ (+ bias) for the panels [begin, end).
  void (*matmul)(const Int8Rows& x, const Int8Panels& w, const ProductOutput& out, int64_t begin, int64_t end);

  // h = f(x Gᵀ) * (x Uᵀ) for the panels [begin, end) of gate and up.
  void (*gate_up)(const Int8Rows& x, const Int8Panels& gate, const Int8Panels& up, GateFunction f, float* h, int64_t ld,
                  int64_t begin, int64_t end);
};

extern const Int8Table kScalarInt8;
extern const Int8Table kAvx2Int8;
extern const Int8Table kAvx512Int8;
extern const Int8Table kAmxInt8;

}  // namespace sluice::kernels::cpu
