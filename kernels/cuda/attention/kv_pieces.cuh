// Sixteen keys or values of a KV head on their way from the paged pool to a warp's shared memory.
//
// Three ways. kAligned: asynchronous copies of 16 bytes (bf16, blocks of a multiple of 16 tokens, head_dim = kDim).
// kAlignedInt8: the same for int8, as bytes, which the warp turns to bf16 when they have come (Dequantise). kAny: plain
// loads of elements of either type, where a head is padded to kDim with zeros. What was loaded is there after the
// warp's AwaitAsyncCopies and a barrier. Keys outside a range become zeros, as what lies there may be no number, which
// no weight of zero would hide; their blocks are not read.
#pragma once

#include <type_traits>

#include "kernels/cuda/async_copy.cuh"
#include "kernels/cuda/attention/attention_params.cuh"
#include "kernels/cuda/attention/online_softmax.cuh"

namespace sluice::kernels::cuda {

enum class KvWay { kAligned, kAlignedInt8, kAny };

// Sixteen int8 keys or values and their scales, as they lie in the pool.
template <int kDim>
struct RawPiece {
  int8_t rows[kPieceKeys][kDim];
  float scales[kPieceKeys];
};

template <int kDim, KvWay kWay>
using StagedPiece = std::conditional_t<kWay == KvWay::kAlignedInt8, RawPiece<kDim>, Piece<kDim>>;

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
  uint32_t at = 0;    // from p.kv on, in units of 16 bytes
  uint32_t slot = 0;  // of the block, int8 only

  __device__ void Load(const AttentionParams& p, const KvHead& head, int span, int lane) {
    if constexpr (kWay != KvWay::kAny) {
      constexpr int kRowBytes = kWay == KvWay::kAligned ? 2 * kDim : kDim;
      const int key = span * kAttentionSpan + lane * kPieceKeys;
      if (lane < kAttentionSpan / kPieceKeys && key <= head.last && key + kPieceKeys > head.first) {
        const int block = key / p.block_size, in_block = key - block * p.block_size;
        at = uint32_t((head.blocks[block] * p.block_bytes + head.at + in_block * kRowBytes) / 16);
        if constexpr (kWay == KvWay::kAlignedInt8) slot = uint32_t(in_block);
      }
    }
  }
};

__device__ inline float Dequantised(float value, float scale) {
  return __fmul_rn(value, scale);
}

__device__ inline __nv_bfloat16 LoadElement(const AttentionParams& p, const unsigned char* slice, int slot, int dim) {
  const size_t at = size_t(slot) * p.head_dim + dim;
  if (p.int8) {
    const float scale = reinterpret_cast<const float*>(slice + p.scales_offset)[slot];
    return __float2bfloat16_rn(Dequantised(reinterpret_cast<const int8_t*>(slice)[at], scale));
  }
  return reinterpret_cast<const __nv_bfloat16*>(slice)[at];
}

template <int kDim>
__device__ inline void LoadPlain(Piece<kDim>& piece, const AttentionParams& p, const KvHead& head, int key,
                                 const unsigned char* plane, int lane) {
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

// By all lanes of a warp. `key`: the first of the piece, a multiple of 16.
template <int kDim, KvWay kWay>
__device__ inline void LoadPiece(StagedPiece<kDim, kWay>& piece, const AttentionParams& p, const KvHead& head,
                                 const SpanBlocks<kDim, kWay>& span, int key, bool values, int lane) {
  const unsigned char* plane = p.kv + (values ? p.plane_bytes : 0);
  if constexpr (kWay == KvWay::kAny) {
    LoadPlain<kDim>(piece, p, head, key, plane, lane);
    return;
  } else {
    constexpr int kElements = kWay == KvWay::kAligned ? 8 : 16;  // in 16 bytes
    constexpr int kChunks = kDim / kElements;                    // of 16 bytes, in a row
    // As many lanes side by side as make all addresses a lane's and a constant.
    constexpr int kLanes = kChunks % 32 == 0 ? 32 : kChunks & -kChunks, kRows = 32 / kLanes;
    const int in_span = key % kAttentionSpan / kPieceKeys;
    const uint32_t at = __shfl_sync(kAllLanes, span.at, in_span);
    const int lane_row = lane / kLanes, lane_chunk = lane % kLanes;
    const unsigned char* from = plane + size_t(at + lane_row * kChunks + lane_chunk) * 16;
    const int first = head.first - key - lane_row, last = head.last - key - lane_row;
    const bool whole = first <= 0 && last >= kPieceKeys;
#pragma unroll
    for (int row = 0; row < kPieceKeys; row += kRows) {
      const bool valid = whole || (row >= first && row <= last);
#pragma unroll
      for (int chunk = 0; chunk < kChunks; chunk += kLanes) {
        CopyAsync16(&piece.rows[row + lane_row][(chunk + lane_chunk) * kElements], from + (row * kChunks + chunk) * 16,
                    valid);
      }
    }
    if constexpr (kWay == KvWay::kAlignedInt8) {
      // The scales of a head slice follow its elements: from the piece's, what is left of the block, and the scales.
      const int slot = int(__shfl_sync(kAllLanes, span.slot, in_span));
      const unsigned char* scales = plane + size_t(at) * 16 - slot * kDim + p.scales_offset + slot * sizeof(float);
      if (lane < 4) CopyAsync16(&piece.scales[lane * 4], scales + lane * 16, key <= head.last);
    }
  }
}

// Four int8 as floats. A byte with its sign turned, as the lowest of a float of 2^23, is the byte + 128 away from it.
__device__ inline float4 FourFloats(uint32_t bytes) {
  const uint32_t turned = bytes ^ 0x80808080u;
  constexpr uint32_t kBias = 0x4b000000u;  // 2^23
  constexpr float kZero = 8388736.0f;      // 2^23 + 128
  return {__uint_as_float(__byte_perm(turned, kBias, 0x7440)) - kZero,
          __uint_as_float(__byte_perm(turned, kBias, 0x7441)) - kZero,
          __uint_as_float(__byte_perm(turned, kBias, 0x7442)) - kZero,
          __uint_as_float(__byte_perm(turned, kBias, 0x7443)) - kZero};
}

// By all lanes of a warp, after a barrier behind its copies; `to` is there after another.
template <int kDim>
__device__ inline void Dequantise(Piece<kDim>& to, const RawPiece<kDim>& from, const KvHead& head, int key, int lane) {
  constexpr int kChunks = kDim / 8;  // of eight elements, in a row
#pragma unroll
  for (int n = 0; n < kPieceKeys * kChunks / 32; ++n) {
    const int row = (n * 32 + lane) / kChunks, chunk = lane % kChunks;
    const uint2 bytes = *reinterpret_cast<const uint2*>(&from.rows[row][chunk * 8]);
    const bool valid = key + row >= head.first && key + row <= head.last;
    const float scale = valid ? from.scales[row] : 0;  // elements that are not valid are zeros
    const float4 a = FourFloats(bytes.x), b = FourFloats(bytes.y);
    *reinterpret_cast<uint4*>(&to.rows[row][chunk * 8]) = {PackBf16(Dequantised(a.x, scale), Dequantised(a.y, scale)),
                                                           PackBf16(Dequantised(a.z, scale), Dequantised(a.w, scale)),
                                                           PackBf16(Dequantised(b.x, scale), Dequantised(b.y, scale)),
                                                           PackBf16(Dequantised(b.z, scale), Dequantised(b.w, scale))};
  }
}

// Two neighbouring elements of a query, zeros past the head.
template <int kDim, KvWay kWay>
__device__ inline uint32_t LoadQueryPair(const AttentionParams& p, int row, int head, int dim) {
  const __nv_bfloat16* from = p.q + row * p.q_stride + head * p.head_dim + dim;
  if constexpr (kWay != KvWay::kAny) {
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
  if constexpr (kWay != KvWay::kAny) {
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
