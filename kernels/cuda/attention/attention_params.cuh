// What the kernels of attention know of a call: AttentionArgs resolved to strides and factors.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "kernels/cuda/attention/attention_plan.h"

namespace sluice::kernels::cuda {

struct AttentionParams {
  const __nv_bfloat16* q;
  __nv_bfloat16* out;
  int64_t q_stride, out_stride;

  const unsigned char* kv;                       // of the pool's layer, at the first KV head
  int64_t block_bytes, plane_bytes, head_bytes;  // kv_layout.h
  int64_t scales_offset;                         // int8: from the start of a head slice
  const int32_t* block_table;
  int max_blocks, block_size, head_dim;
  bool int8;

  int group;   // query heads of a KV head
  int chunks;  // pieces of at most kSpanItemRows heads that a group is cut into
  int heads;   // query heads in all

  const int32_t* plan;
  float2* results;  // [partials][heads] maximum and weight
  float* sums;      // [partials][heads][kDim]

  float factor;     // from scores, capped if there is a cap, to units of log 2
  float scale_cap;  // scale / cap, where there is a cap
  float cap;        // 0: none
  int window;       // INT_MAX: none
  const float* sinks;
};

// The heads of a KV head's group that a block works on: grid.y is KV heads x chunks.
struct HeadChunk {
  int kv_head, first, count;  // first: of all query heads

  __device__ HeadChunk(const AttentionParams& p, int y)
      : kv_head(y / p.chunks),
        first(kv_head * p.group + y % p.chunks * kSpanItemRows),
        count(min(kSpanItemRows, p.group - y % p.chunks * kSpanItemRows)) {}
};

// The first key that a row at `position` sees.
__device__ inline int FirstKey(int position, int window) {
  return max(0, position - (window - 1));
}

}  // namespace sluice::kernels::cuda
