// The kernels of one instruction set as a table of functions: single-threaded, over ranges that the caller splits.
//
// Promise: every table gives the same bits (numerics id "f32.1"). The arithmetic:
//  - dot products: sixteen lanes, lane l sums k = l, l + 16, ... with fma in ascending k; then lanes are added pairwise
//    at distance 8, 4, 2, 1. Rows are padded with zeros to a multiple of 32, so the tail is part of the same order;
//  - a weight is the value of DequantizeRow (kernels/dequant.h), whether it comes from registers or from a tile;
//  - attention: see attention_inl.h.
//
// Only plain structs here: files compiled for AVX-512 include this header, so a function in it must be forced inline.
#pragma once

#include <cstdint>

#include "kernels/dtype.h"

namespace sluice::kernels::cpu {

// Floats of an activation row: cols rounded up to this, the rest zero.
inline constexpr int kRowPad = 32;

// Weight rows that share a tile of dequantised floats, and so the grain of a split over columns.
inline constexpr int kTileColumns = 8;

// Keys of an attention tile. Part of the numerics id: tiles start at absolute position 0.
inline constexpr int kKeyTile = 64;

// (query row, head) pairs that one attention item may hold.
inline constexpr int kAttentionRows = 48;

// y[m][n] (+)= sum_k x[m][k] * w[n][k] (+ bias[n])
struct MatmulArgs {
  DType type;
  const uint8_t* w;   // [n][cols] in `type`
  int64_t row_bytes;  // from one weight row to the next
  int64_t cols;       // k
  const float* x;     // [rows][ldx], ldx >= cols rounded up to kRowPad, zero past cols
  int64_t ldx;
  int64_t rows;
  float* y;  // [rows][ldy]
  int64_t ldy;
  const float* bias;  // [n] or null
  bool accumulate;    // y += instead of y =
  float* tile;        // scratch, kTileColumns * ldx floats, 64-byte aligned
};

// out = softmax(scale * q Kᵀ + causal mask) V for consecutive tokens of one sequence and some heads of one KV head.
struct AttentionArgs {
  const float* q;  // first token's row, at the first head: [tokens][ldq], heads of head_dim side by side
  int64_t ldq;
  float* out;  // likewise, [tokens][ldo]
  int64_t ldo;
  int tokens;
  int heads;               // tokens * heads <= kAttentionRows
  int64_t first_position;  // of the first token
  int head_dim;
  float scale;
  const float* kv;       // the layer's region, at this KV head's K of block 0: [block][...]
  int64_t block_stride;  // floats from a block to the next
  int64_t v_offset;      // floats from K to V
  int block_size;
  const int32_t* blocks;  // block table of the sequence
  float* scratch;         // AttentionScratchFloats(head_dim), 64-byte aligned
};

struct KernelTable {
  void (*matmul)(const MatmulArgs& args, int64_t n_begin, int64_t n_end);

  // out[i] = (x[i] / sqrt(mean(x²) + eps)) * weight[i]; x is zero past n up to kRowPad.
  void (*rms_norm)(const float* x, const float* weight, float eps, int64_t n, float* out);

  // Rotates the leading rotary_dim of each head in place. cos_sin: [rotary_dim], cosines of all pairs, then sines.
  void (*rope)(float* heads, int num_heads, int head_dim, int rotary_dim, bool half_split, const float* cos_sin);

  void (*attention)(const AttentionArgs& args);

  // gate[i] = act(gate[i]) * up[i]
  void (*silu_mul)(float* gate, const float* up, int64_t n);
  void (*gelu_tanh_mul)(float* gate, const float* up, int64_t n);

  // maxima[i] = the largest of x[64 i] to x[64 i + 63] (kLogitBlock), as far as they go; NaN counts for nothing.
  void (*block_maxima)(const float* x, int64_t n, float* maxima);

  // out[i] = exp(x[i]), for tests of the polynomial.
  void (*exp)(const float* x, int64_t n, float* out);

  // cols floats of one weight row, zero-padded to kRowPad, for tests of the vector dequantisation.
  void (*dequantize)(DType type, const uint8_t* row, int64_t cols, float* out);
};

extern const KernelTable kScalarKernels;
extern const KernelTable kAvx2Kernels;
extern const KernelTable kAvx512Kernels;

// Scratch of KernelTable::attention: q and out rows, scores, sums, and a copy of one tile of K and V.
__attribute__((always_inline)) constexpr int64_t PaddedHeadDim(int64_t head_dim) {
  return (head_dim + 15) / 16 * 16;
}
__attribute__((always_inline)) constexpr int64_t AttentionScratchFloats(int64_t head_dim) {
  return PaddedHeadDim(head_dim) * (2 * kAttentionRows + 2 * kKeyTile) + kAttentionRows * (kKeyTile + 16);
}

}  // namespace sluice::kernels::cpu
