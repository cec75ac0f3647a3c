// Sixteen keys or values of a KV head on their way from the paged pool to a warp's shared memory.
//
// Two ways: kAligned, asynchronous copies of 16 bytes (bf16, blocks of a multiple of 16 tokens, head_dim = kDim); and
// kAny, plain loads of elements, where a head is padded to kDim with zeros. Either way the piece is there after the
// warp's AwaitAsyncCopies and a barrier. Keys outside a range become zeros, as what lies there may be no number, which
// no weight of zero would hide; neither they nor their blocks are read.
#pragma once

#include "kernels/cuda/async_copy.cuh"
#include "kernels/cuda/attention/attention_params.cuh"
#include "kernels/cuda/attention/online_softmax.cuh"

namespace sluice::kernels::cuda {

enum class KvWay { kAligned, kAny };

// One KV head of one sequence; keys first .. last count.
struct KvHead {
  const int32_t* blocks;
  int64_t at;  // of its K in a block
  int first, last;

  KvHead() = default;
  __device__ KvHead(const AttentionParams& p, int seq, int kv_head, int first, int last)
      : blocks(p.block_table + size_t(seq) * p.max_blocks), at(kv_head * p.head_bytes), first(first), last(last) {}
};

// Lane i holds where piece i of a span lies, so that a piece's copies don't wait for the table.
template <int kDim, KvWay kWay>
struct SpanBlocks {
  uint32_t at = 0;  // from p.kv on, in units of 16 bytes

  __device__ void Load(const AttentionParams& p, const KvHead& head, int span, int lane) {
    if constexpr (kWay == KvWay::kAligned) {
      const int key = span * kAttentionSpan + lane * kPieceKeys;
      if (lane < kAttentionSpan / kPieceKeys && key <= head.last && key + kPieceKeys > head.first) {
        const int block = key / p.block_size;
        at = uint32_t((head.blocks[block] * p.block_bytes + head.at + (key - block * p.block_size) * (kDim * 2)) / 16);
      }
    }
  }
};

__device__ inline __nv_bfloat16 Dequantise(int8_t value, float scale) {
  return __float2bfloat16_rn(__fmul_rn(float(value), scale));
}

__device__ inline __nv_bfloat16 LoadElement(const AttentionParams& p, const unsigned char* slice, int slot, int dim) {
  const size_t at = size_t(slot) * p.head_dim + dim;
  if (p.int8) {
    const float scale = reinterpret_cast<const float*>(slice + p.scales_offset)[slot];
    return Dequantise(reinterpret_cast<const int8_t*>(slice)[at], scale);
  }
  return reinterpret_cast<const __nv_bfloat16*>(slice)[at];
}

// By all lanes of a warp. `key`: the first of the piece, a multiple of 16.
template <int kDim, KvWay kWay>
__device__ inline void LoadPiece(Piece<kDim>& piece, const AttentionParams& p, const KvHead& head,
                                 const SpanBlocks<kDim, kWay>& span, int key, bool values, int lane) {
  const unsigned char* plane = p.kv + (values ? p.plane_bytes : 0);
  if constexpr (kWay == KvWay::kAligned) {
    constexpr int kChunks = kDim / 8;  // of 16 bytes, in a row
    // As many lanes side by side as make all addresses a lane's and a constant.
    constexpr int kLanes = kChunks % 32 == 0 ? 32 : kChunks & -kChunks, kRows = 32 / kLanes;
    const uint32_t at = __shfl_sync(kAllLanes, span.at, key % kAttentionSpan / kPieceKeys);
    const int lane_row = lane / kLanes, lane_chunk = lane % kLanes;
    const unsigned char* from = plane + size_t(at + lane_row * kChunks + lane_chunk) * 16;
    const int first = head.first - key - lane_row, last = head.last - key - lane_row;
    const bool whole = first <= 0 && last >= kPieceKeys;
#pragma unroll
    for (int row = 0; row < kPieceKeys; row += kRows) {
      const bool valid = whole || (row >= first && row <= last);
#pragma unroll
      for (int chunk = 0; chunk < kChunks; chunk += kLanes) {
        CopyAsync16(&piece.rows[row + lane_row][(chunk + lane_chunk) * 8], from + (row * kChunks + chunk) * 16, valid);
      }
    }
  } else {
#pragma unroll 1
    for (int i = lane; i < kPieceKeys * kDim; i += 32) {
      const int row = i / kDim, dim = i % kDim, here = key + row;
      __nv_bfloat16 value = __float2bfloat16_rn(0);
      if (dim < p.head_dim && here >= head.first && here <= head.last) {
        const int block = here / p.block_size;
        value = LoadElement(p, plane + head.blocks[block] * p.block_bytes + head.at, here - block * p.block_size, dim);
      }
      piece.rows[row][dim] = value;
    }
  }
}

// Two neighbouring elements of a query, zeros past the head.
template <int kDim, KvWay kWay>
__device__ inline uint32_t LoadQueryPair(const AttentionParams& p, int row, int head, int dim) {
  const __nv_bfloat16* from = p.q + row * p.q_stride + head * p.head_dim + dim;
  if constexpr (kWay == KvWay::kAligned) {
    return *reinterpret_cast<const uint32_t*>(from);
  } else {
    const uint32_t low = dim < p.head_dim ? __bfloat16_as_ushort(from[0]) : 0;
    const uint32_t high = dim + 1 < p.head_dim ? __bfloat16_as_ushort(from[1]) : 0;
    return low | high << 16;
  }
}

template <int kDim, KvWay kWay>
__device__ inline void StoreOutPair(const AttentionParams& p, int row, int head, int dim, float low, float high) {
  __nv_bfloat16* to = p.out + row * p.out_stride + head * p.head_dim + dim;
  if constexpr (kWay == KvWay::kAligned) {
    *reinterpret_cast<uint32_t*>(to) = PackBf16(low, high);
  } else {
    if (dim < p.head_dim) to[0] = __float2bfloat16_rn(low);
    if (dim + 1 < p.head_dim) to[1] = __float2bfloat16_rn(high);
  }
}

// The A fragment of 16 rows, elements 16 d .. of their head. rows[], heads[]: of the lane's two rows; row < 0: zeros.
template <int kDim, KvWay kWay>
__device__ inline void LoadQueries(uint32_t (&q)[4], const AttentionParams& p, const int (&rows)[2],
                                   const int (&heads)[2], int d, int lane) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int r = i % 2, dim = d * 16 + lane % 4 * 2 + i / 2 * 8;
    q[i] = rows[r] < 0 ? 0 : LoadQueryPair<kDim, kWay>(p, rows[r], heads[r], dim);
  }
}

}  // namespace sluice::kernels::cuda
