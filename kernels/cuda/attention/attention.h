// Attention over a paged KV cache: out = softmax(scale q Kᵀ) V for each row over the keys it sees, grouped-query.
// One call serves decode, verification and prefill rows; attention_plan.h says who does what.
//
// A row's bits depend on the row and its keys alone. Each span of 256 keys is computed in tiles of 64 with a running
// maximum, from nothing; spans fold in ascending order with explicitly rounded operations. Weights are rounded to bf16,
// and their sum is that of the rounded ones. So neither the batch, nor the chunking, nor the kernel shows in a result.
//
// What no row of an item sees is not read: blocks past the context or before the window may hold anything, and their
// entries in the block table may be anything.
//
// Limits: head_dim <= 256. Fast (16-byte asynchronous copies) where head_dim is 64, 80, 96, 128 or 256, block_size a
// multiple of 16 and kv 16-byte aligned; otherwise plain loads. bf16 or int8 cache (kv_layout.h). sm_80 and later.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/attention/attention_plan.h"
#include "kernels/kv_layout.h"

namespace sluice::kernels::cuda {

struct AttentionArgs {
  const __nv_bfloat16* q = nullptr;  // [rows][q_stride], heads of head_dim from column 0 on
  int64_t q_stride = 0;
  __nv_bfloat16* out = nullptr;  // [rows][out_stride], likewise; only the rows of the plan are written
  int64_t out_stride = 0;

  const void* kv = nullptr;              // a layer's region of the pool
  KvLayout layout;                       // of the pool; kBF16 or kInt8
  int first_kv_head = 0;                 // of the pool, which the first `shape.group` heads of q belong to
  int kv_heads = 0;                      // to compute
  const int32_t* block_table = nullptr;  // [seqs][max_blocks]
  int max_blocks = 0;

  const int32_t* plan = nullptr;  // device memory: BuildAttentionPlan for `shape`
  AttentionShape shape;           // head_dim is the layout's
  AttentionCapacity capacity;     // spans, merges, prefills size the launches (0: none); partials sizes the workspace
  void* workspace = nullptr;      // AttentionWorkspace() bytes, 256-byte aligned

  float scale = 1;               // > 0
  float soft_cap = 0;            // scores become cap * tanh(score / cap); 0: none
  const float* sinks = nullptr;  // [kv_heads * group] scores that only the denominator knows; null: none
};

// For any args with that many partials (AttentionCapacity) and query heads.
size_t AttentionWorkspace(int partials, int heads, int head_dim);

// cudaErrorInvalidValue for a shape that is not supported. Three launches at most, no allocation.
cudaError_t Attention(const AttentionArgs& args, cudaStream_t stream);

}  // namespace sluice::kernels::cuda
