// K and V in few bits: how they lie inside a block, and what reads and writes them.
//
// One KV head's part of a block (kv_layout.h) is
//   K: [slot / 16][head dim][16 slots]   sixteen keys are the lanes of a vector: scores need no sums across lanes
//   V: [slot][head dim]
// Where block_size is no multiple of 16, K lies as V does and is turned when it is read: as right, and slower.
//   bf16   elements rounded to nearest even
//   int8   elements rounded to nearest even in [-127, 127] by a scale of each token and head, max|x| / 127; the scales,
//          [slot] floats, lie behind the elements, of K and of V. What is stored of K is rotated (`rotate`), and so are
//          the queries: the products are the same but for the rotation's gain, and no channel rules a scale.
//
// The arithmetic of one (token, head) row, part of the numerics id:
//   q' = q * scale, rounded. Spans of kSpanKeys keys from absolute position 0; in a span, tiles of kKeyTile keys,
//   ascending, as in attention_inl.h but with the score of a key as one chain of fma over ascending d, and in int8
//   then the product with its scale; the weight of a value is p times its scale, rounded. Spans after the
//   first are merged into what came before: M = max(Ma, Mb), a = exp(Ma - M), b = exp(Mb - M), and sums and outs as
//   fma(of the span, b, before * a). So spans can be computed apart: a part of the keys leaves states, which are merged
//   in the same order later, to the same bits.
//
// Only plain structs here, as in kernel_table.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/int8/rotation.h"
#include "kernels/cpu/kernel_table.h"

namespace sluice::kernels::cpu {

inline constexpr int kSpanKeys = 256;  // a multiple of kKeyTile

// Bytes.
struct KvStrides {
  int64_t block;   // from a block to the next
  int64_t v;       // from K to V
  int64_t scales;  // from the first element of K or V of a block and head to the scales; of int8
};

// The keys of the sequence and head that are computed next, so that the first of them are on their way in time.
struct NextKeys {
  const std::byte* kv = nullptr;    // null: none
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
struct PagedAttentionArgs {
  const float* q;
  int64_t ldq;
  float* out;
  int64_t ldo;
  int tokens;
  int heads;
  int64_t first_position;
  int head_dim;
  float scale;
  const std::byte* kv;  // the layer's region, at this KV head's K of block 0
  KvStrides strides;
  int block_size;
  const int32_t* blocks;  // block table

  // All keys that the rows see if first_key is 0, end_key is past the last one and states is null: then `out` is
  // written. Else a part of them, from the start of a span to the end of one, and `states` is: one state of the part
  // that starts at 0, and one of every span of the other parts, the rows left out that do not see it.
  int64_t first_key;
  int64_t end_key;
  float* states;
  NextKeys next;
  float* scratch;  // PagedAttentionScratchFloats(head_dim), 64-byte aligned
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

struct KvTable {
  // Rotates a head of K or Q, a multiple of 16 wide, in place before it is stored or used; null: it is not.
  void (*rotate)(const Rotation& rotation, float* head);
  // Stores k and v [head_dim] of one slot; `kv` is at the K of the block and head.
  void (*write)(const float* k, const float* v, int head_dim, int slot, int block_size, const KvStrides& strides,
                std::byte* kv);
  void (*attention)(const PagedAttentionArgs& args);
  void (*merge)(const MergeArgs& args);
};

extern const KvTable kScalarBf16Kv, kScalarInt8Kv;
extern const KvTable kAvx2Bf16Kv, kAvx2Int8Kv;
extern const KvTable kAvx512Bf16Kv, kAvx512Int8Kv;

// Rows as in AttentionScratchFloats (its copied keys serve as turned ones), and the outs, maxima and sums of the spans
// before.
__attribute__((always_inline)) constexpr int64_t PagedAttentionScratchFloats(int64_t head_dim) {
  return AttentionScratchFloats(head_dim) + kAttentionRows * (PaddedHeadDim(head_dim) + 32);
}

}  // namespace sluice::kernels::cpu
