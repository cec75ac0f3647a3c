// Attention of decode rows, one query token a row, over a paged KV cache: out = softmax(scale q Kᵀ) V, grouped-query.
//
// A context is cut into spans of kSpan keys at absolute positions; each span is computed by a block of its own and they
// merge in ascending order (FlashDecoding; Dao et al. 2023), so a row's bits depend on the row alone: not on the batch
// and not on how many blocks there are. Inside a block the queries of one KV head's group are the rows of matrix
// fragments, each of the four warps takes every fourth KV block of the span, and these four merge in order too.
//
// Limits: bf16; blocks of 16 tokens; head dims 64 and 128; at most 16 query heads to a KV head.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace sluice::kernels::cuda {

struct DecodeAttentionArgs {
  const __nv_bfloat16* q = nullptr;      // [rows][heads][head_dim]
  const __nv_bfloat16* kv = nullptr;     // a layer of the pool: [block][K|V][kv_head][16][head_dim], 16-byte aligned
  const int32_t* block_table = nullptr;  // [rows][max_blocks]; entries past the context are not read
  const int32_t* context_len = nullptr;  // [rows] >= 1
  __nv_bfloat16* out = nullptr;          // [rows][heads][head_dim]
  void* workspace = nullptr;             // DecodeAttentionWorkspace(args) bytes, 16-byte aligned
  int rows = 0, heads = 0, kv_heads = 0, head_dim = 0;
  int max_blocks = 0;
  int max_context = 0;  // no context is longer; decides how many blocks are launched, not what they compute
  float scale = 1;
};

inline constexpr int kDecodeSpan = 256;  // keys

size_t DecodeAttentionWorkspace(const DecodeAttentionArgs& args);

// cudaErrorInvalidValue for a shape that is not supported. No rows: nothing is launched.
cudaError_t DecodeAttention(const DecodeAttentionArgs& args, cudaStream_t stream);

}  // namespace sluice::kernels::cuda
