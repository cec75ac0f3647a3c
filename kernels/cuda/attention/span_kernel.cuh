// Span items: a warp an item and KV head. Keys and values come in pieces of 16 through a ring of asynchronous copies of
// the warp's own, most of them under way at any time; warps of a block share nothing. The results are merged by a
// second kernel, a warp a row and head.
#pragma once

#include "kernels/cuda/attention/kv_pieces.cuh"
#include "kernels/cuda/attention/online_softmax.cuh"

namespace sluice::kernels::cuda {

inline constexpr int kSpanWarps = 4;

template <int kDim, KvWay kWay>
struct SpanShared {
  static constexpr int kRing = kDim > 128 ? 3 : kDim > 64 ? 4 : 6;
  static constexpr bool kQueries = kDim > 128;  // there instead of in registers
  static constexpr bool kInt8 = kWay == KvWay::kAlignedInt8;
  struct Warp {
    StagedPiece<kDim, kWay> ring[kRing];
    Piece<kDim> dequantised[kInt8 ? 1 : 0];
    uint4 queries[kQueries ? kDim / 16 : 1][kQueries ? 32 : 1];
  } warps[kSpanWarps];
};

// The order of the pieces: of each tile the keys, then the values, without the pieces that nobody sees.
struct PieceCursor {
  int piece, end;  // of the sequence's, from key 0 on
  int first;       // of the tile's that are seen
  bool values = false;

  __device__ PieceCursor(int begin, int end) : piece(begin), end(end), first(begin) {}
  __device__ bool Done() const { return piece >= end; }
  __device__ void Next() {
    ++piece;
    if (piece % kTilePieces != 0 && piece < end) return;
    if (!values) {
      piece = first;
    } else {
      first = piece;
    }
    values = !values;
  }
};

template <int kDim, KvWay kWay>
class PieceRing {
 public:
  using Warp = typename SpanShared<kDim, kWay>::Warp;

  __device__ PieceRing(Warp& shared, const AttentionParams& p, const KvHead& head, const SpanBlocks<kDim, kWay>& blocks,
                       int begin, int end, int lane)
      : shared_(shared), p_(p), head_(head), blocks_(blocks), cursor_(begin, end), lane_(lane) {
#pragma unroll 1
    for (int i = 0; i < kRing - 1; ++i) Issue();
  }
  // The next piece, which begins at `key`, for all lanes, until they call it again.
  __device__ const Piece<kDim>& Next(int key) {
    AwaitAsyncCopies<kRing - 2>();
    __syncwarp();  // what others copied is there, and nobody reads the piece before any more
    Issue();
    const StagedPiece<kDim, kWay>& piece = shared_.ring[read_];
    read_ = read_ + 1 == kRing ? 0 : read_ + 1;
    if constexpr (kWay == KvWay::kAlignedInt8) {
      Dequantise<kDim>(shared_.dequantised[0], piece, head_, key, lane_);
      __syncwarp();
      return shared_.dequantised[0];
    } else {
      return piece;
    }
  }

 private:
  static constexpr int kRing = SpanShared<kDim, kWay>::kRing;

  // A group for each piece, empty where there is none, so that groups count alike.
  __device__ void Issue() {
    if (!cursor_.Done()) {
      LoadPiece<kDim, kWay>(shared_.ring[write_], p_, head_, blocks_, cursor_.piece * kPieceKeys, cursor_.values,
                            lane_);
      cursor_.Next();
    }
    CommitAsyncCopies();
    write_ = write_ + 1 == kRing ? 0 : write_ + 1;
  }

  Warp& shared_;
  const AttentionParams& p_;
  const KvHead& head_;
  const SpanBlocks<kDim, kWay>& blocks_;
  PieceCursor cursor_;
  int lane_, read_ = 0, write_ = 0;
};

// The lane's rows of an item: matrix row r is token r / heads, head r % heads.
struct ItemRows {
  int tokens[2], heads[2];  // heads: of all query heads
  bool used[2];
  RowKeys keys;

  __device__ ItemRows(int first_row, int item_tokens, int position, const HeadChunk& chunk, int lane) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = first_row + lane / 4 + 8 * r, token = row / chunk.count;
      used[r] = token < item_tokens;
      tokens[r] = used[r] ? token : item_tokens - 1;  // whose keys hinder nobody
      heads[r] = chunk.first + row % chunk.count;
      keys.last[r] = position + tokens[r];
    }
  }
};

__device__ inline bool SeesSpan(int position, int span, int window) {
  return FirstKey(position, window) < (span + 1) * kAttentionSpan && position >= span * kAttentionSpan;
}

template <int kDim, KvWay kWay>
__device__ void StoreSpan(const AttentionParams& p, const SpanItem& item, const ItemRows& rows,
                          const SpanSum<kDim>& sum, int lane) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    if (!rows.used[r] || !SeesSpan(rows.keys.last[r], item.span, p.window)) continue;
    const size_t at = size_t(item.partial + rows.tokens[r] * item.stride) * p.heads + rows.heads[r];
    float* to = p.sums + at * kDim + lane % 4 * 2;
#pragma unroll
    for (int d = 0; d < kDim / 8; ++d) {
      *reinterpret_cast<float2*>(to + d * 8) = {sum.sums[d][2 * r], sum.sums[d][2 * r + 1]};
    }
    if (lane % 4 == 0) p.results[at] = {__fmul_rn(sum.maximum[r], p.factor), sum.weight[r]};
  }
}

template <int kDim, KvWay kWay>
__device__ void ComputeSpan(const AttentionParams& p, typename SpanShared<kDim, kWay>::Warp& shared,
                            const SpanItem& item, const HeadChunk& chunk, int lane) {
  constexpr bool kSharedQueries = SpanShared<kDim, kWay>::kQueries;
  const ItemRows rows(0, item.tokens, item.position, chunk, lane);
  const int last_position = item.position + item.tokens - 1;
  const int begin = max(item.span * kAttentionSpan, FirstKey(item.position, p.window)) / kPieceKeys;
  const int end = min((item.span + 1) * kAttentionSpan, last_position + 1);
  const KvHead head(p, item.seq, chunk.kv_head, FirstKey(item.position, p.window), last_position);
  SpanBlocks<kDim, kWay> blocks;
  blocks.Load(p, head, item.span, lane);
  const int end_piece = (end + kPieceKeys - 1) / kPieceKeys;
  PieceRing<kDim, kWay> ring(shared, p, head, blocks, begin, end_piece, lane);

  const int q_rows[2] = {rows.used[0] ? item.row + rows.tokens[0] : -1, rows.used[1] ? item.row + rows.tokens[1] : -1};
  uint32_t q[kSharedQueries ? 1 : kDim / 16][4];
#pragma unroll
  for (int d = 0; d < kDim / 16; ++d) {
    uint32_t(&to)[4] = q[kSharedQueries ? 0 : d];
    LoadQueries<kDim, kWay>(to, p, q_rows, rows.heads, d, lane);
    if constexpr (kSharedQueries) shared.queries[d][lane] = {to[0], to[1], to[2], to[3]};
  }

  SpanSum<kDim> sum;
  sum.Clear();
  for (int tile = begin / kTilePieces * kTilePieces; tile < end_piece; tile += kTilePieces) {
    float scores[2 * kTilePieces][4] = {};
#pragma unroll
    for (int j = 0; j < kTilePieces; ++j) {
      if (tile + j < begin || tile + j >= end_piece) continue;
      const Piece<kDim>& piece = ring.Next((tile + j) * kPieceKeys);
#pragma unroll
      for (int d = 0; d < kDim / 16; ++d) {
        uint32_t k[4];
        LoadKeys<kDim>(k, piece, d, lane);
        if constexpr (kSharedQueries) {
          const uint4 from = shared.queries[d][lane];  // the lane's own
          ScorePiece<kDim>(scores[2 * j], scores[2 * j + 1], {from.x, from.y, from.z, from.w}, k);
        } else {
          ScorePiece<kDim>(scores[2 * j], scores[2 * j + 1], q[d], k);
        }
      }
    }
    uint32_t weights[kTilePieces][4];
    const int first_key = tile * kPieceKeys;
    const bool masked = first_key < FirstKey(last_position, p.window) || first_key + kTileKeys - 1 > item.position;
    CapAndMask(scores, rows.keys, first_key, masked, p, lane);
    Weigh<kDim>(weights, scores, sum, p);
    AddWeights<kDim>(sum, weights);
#pragma unroll
    for (int j = 0; j < kTilePieces; ++j) {
      if (tile + j < begin || tile + j >= end_piece) continue;
      const Piece<kDim>& piece = ring.Next((tile + j) * kPieceKeys);
#pragma unroll
      for (int d = 0; d < kDim / 16; ++d) {
        uint32_t v[4];
        LoadValues<kDim>(v, piece, d, lane);
        AddValues<kDim>(sum, weights[j], v, d);
      }
    }
  }
  StoreSpan<kDim, kWay>(p, item, rows, sum, lane);
  AwaitAsyncCopies<0>();
  __syncwarp();  // before the next item's copies
}

// grid: x over items, y over KV heads x chunks of their groups.
template <int kDim, KvWay kWay>
__global__ void __launch_bounds__(kSpanWarps * 32, 2) SpanKernel(const __grid_constant__ AttentionParams p) {
  extern __shared__ __align__(16) unsigned char memory[];
  auto& shared = *reinterpret_cast<SpanShared<kDim, kWay>*>(memory);
  const AttentionPlanHeader& header = *reinterpret_cast<const AttentionPlanHeader*>(p.plan);
  const SpanItem* items = reinterpret_cast<const SpanItem*>(p.plan + header.span_at);
  const int warp = int(threadIdx.x / 32), lane = int(threadIdx.x % 32), count = header.spans;
  const HeadChunk chunk(p, int(blockIdx.y));
  for (int i = int(blockIdx.x) * kSpanWarps + warp; i < count; i += int(gridDim.x) * kSpanWarps) {
    ComputeSpan<kDim, kWay>(p, shared.warps[warp], items[i], chunk, lane);
  }
}

inline constexpr int kMergeWarps = 4;

// grid: x over rows, y over heads, kMergeWarps of them a block.
template <int kDim, KvWay kWay>
__global__ void __launch_bounds__(kMergeWarps * 32) MergeKernel(const __grid_constant__ AttentionParams p) {
  constexpr int kPairs = kDim / 2, kKept = (kPairs + 31) / 32;
  const AttentionPlanHeader& header = *reinterpret_cast<const AttentionPlanHeader*>(p.plan);
  const MergeItem* items = reinterpret_cast<const MergeItem*>(p.plan + header.merge_at);
  const int lane = int(threadIdx.x % 32), head = int(blockIdx.y) * kMergeWarps + int(threadIdx.x / 32);
  if (head >= p.heads) return;
  for (int i = int(blockIdx.x); i < header.merges; i += int(gridDim.x)) {
    const MergeItem item = items[i];
    float maximum = -INFINITY, weight = 0;
    float2 total[kKept] = {};
#pragma unroll 4
    for (int s = 0; s < item.spans; ++s) {
      const size_t at = size_t(item.partial + s) * p.heads + head;
      const float2 result = p.results[at];
      const float2* sums = reinterpret_cast<const float2*>(p.sums + at * kDim);
      const Fold fold(maximum, result.x);
      weight = fold(weight, result.y);
#pragma unroll
      for (int k = 0; k < kKept; ++k) {
        if (lane + k * 32 >= kPairs) continue;
        const float2 sum = sums[lane + k * 32];
        total[k] = {fold(total[k].x, sum.x), fold(total[k].y, sum.y)};
      }
    }
    const float factor = Normaliser(maximum, weight, p.sinks, head);
#pragma unroll
    for (int k = 0; k < kKept; ++k) {
      if (lane + k * 32 >= kPairs) continue;
      StoreOutPair<kDim, kWay>(p, item.row, head, (lane + k * 32) * 2, __fmul_rn(total[k].x, factor),
                               __fmul_rn(total[k].y, factor));
    }
  }
}

}  // namespace sluice::kernels::cuda
