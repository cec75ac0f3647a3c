// K and V in 16 bits: how they lie inside a block, and what reads and writes them.
//
// One KV head's part of a block (kv_layout.h) is
//   K: [slot / 16][head dim][16 slots]   sixteen keys are the lanes of a vector: scores need no sums across lanes
//   V: [slot][head dim]
// both bf16, rounded to nearest even. Where block_size is no multiple of 16, K lies as V does and is turned when it is
// read: as right, and slower.
//
// The arithmetic of one (token, head) row, part of the numerics id:
//   q' = q * scale, rounded. Spans of kSpanKeys keys from absolute position 0; in a span, tiles of kKeyTile keys,
//   ascending, as in attention_inl.h but with the score of a key as one chain of fma over ascending d. Spans after the
//   first are merged into what came before: M = max(Ma, Mb), a = exp(Ma - M), b = exp(Mb - M), and sums and outs as
//   fma(of the span, b, before * a). So spans can be computed apart: a part of the keys leaves states, which are merged
//   in the same order later, to the same bits.
//
// Only plain structs here, as in kernel_table.h.
#pragma once

#include <cstdint>

#include "kernels/cpu/kernel_table.h"

namespace sluice::kernels::cpu {

inline constexpr int kSpanKeys = 256;  // a multiple of kKeyTile

// The keys of the sequence and head that are computed next, so that the first of them are on their way in time.
struct Bf16NextItem {
  const uint16_t* kv = nullptr;     // null: none
  const int32_t* blocks = nullptr;  // block table
  int64_t first_key = 0;
  int64_t end_key = 0;
};

// What some rows got from some of their keys, before the division by the sum: out [rows][padded head dim], max [rows],
// sum [rows].
__attribute__((always_inline)) constexpr int64_t AttentionStateFloats(int64_t rows, int64_t head_dim) {
  return rows * (PaddedHeadDim(head_dim) + 2);
}

// As AttentionArgs, but for `kv`.
struct Bf16AttentionArgs {
  const float* q;
  int64_t ldq;
  float* out;
  int64_t ldo;
  int tokens;
  int heads;
  int64_t first_position;
  int head_dim;
  float scale;
  const uint16_t* kv;    // the layer's region, at this KV head's K of block 0
  int64_t block_stride;  // elements from a block to the next
  int64_t v_offset;      // elements from K to V
  int block_size;
  const int32_t* blocks;  // block table

  // All keys that the rows see if first_key is 0, end_key is past the last one and states is null: then `out` is
  // written. Else a part of them, from the start of a span to the end of one, and `states` is: one state of the part
  // that starts at 0, and one of every span of the other parts, the rows left out that do not see it.
  int64_t first_key;
  int64_t end_key;
  float* states;
  Bf16NextItem next;
  float* scratch;  // Bf16AttentionScratchFloats(head_dim), 64-byte aligned
};

// One row of states that stand for all of its keys, in ascending order.
struct MergeArgs {
  const float* states;  // [count] states of `rows` rows
  int count;
  int rows;
  int row;
  int head_dim;
  float* out;  // [head_dim]
};

struct Bf16KvTable {
  // Stores k and v [head_dim] of one slot; `kv` is at the K of the block and head.
  void (*write)(const float* k, const float* v, int head_dim, int slot, int block_size, int64_t v_offset, uint16_t* kv);
  void (*attention)(const Bf16AttentionArgs& args);
  void (*merge)(const MergeArgs& args);
};

extern const Bf16KvTable kScalarBf16Kv;
extern const Bf16KvTable kAvx2Bf16Kv;
extern const Bf16KvTable kAvx512Bf16Kv;

// Rows as in AttentionScratchFloats (its copied keys serve as turned ones), and the outs, maxima and sums of the spans
// before.
__attribute__((always_inline)) constexpr int64_t Bf16AttentionScratchFloats(int64_t head_dim) {
  return AttentionScratchFloats(head_dim) + kAttentionRows * (PaddedHeadDim(head_dim) + 32);
}

}  // namespace sluice::kernels::cpu
