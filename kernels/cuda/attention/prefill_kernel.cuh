// Prefill items (FlashAttention-2; Dao 2023): a block an item and KV head, each warp 16 or 32 rows (tokens x heads of the
// group) against tiles of 64 keys that all warps share; a warp brings in a quarter of each tile. The values of a tile
// come while its scores are computed, the next keys while values are added. The sum over spans waits in shared memory
// while a span's is in registers.
#pragma once

#include "kernels/cuda/attention/kv_pieces.cuh"
#include "kernels/cuda/attention/online_softmax.cuh"
#include "kernels/cuda/attention/span_kernel.cuh"

namespace sluice::kernels::cuda {

inline constexpr int kPrefillWarps = kTilePieces;

template <int kDim>
struct PrefillShared {
  static constexpr int kFragments = PrefillItemRows(kDim) / (16 * kPrefillWarps);  // of 16 rows, a warp
  static constexpr bool kQueries = kDim > 64;                                      // there instead of in registers
  Piece<kDim> k[kTilePieces], v[kTilePieces];
  // What follows is each lane's own.
  float4 totals[kPrefillWarps][kFragments][kDim / 8][32];
  uint4 queries[kPrefillWarps][kQueries ? kFragments : 1][kQueries ? kDim / 16 : 1][kQueries ? 32 : 1];
};

// A warp's rows of an item, and what it knows of them.
template <int kDim, KvWay kWay>
class PrefillWarp {
 public:
  __device__ PrefillWarp(PrefillShared<kDim>& shared, const AttentionParams& p, const PrefillItem& item,
                         const HeadChunk& chunk, int warp, int lane)
      : shared_(shared), p_(p), item_(item), chunk_(chunk), warp_(warp), lane_(lane) {
    const int rows = item.tokens * chunk.count, begin = warp * kFragments * 16;
    const int end = min(rows, begin + kFragments * 16);
    idle_ = begin >= rows;
    first_position_ = item.position + begin / chunk.count;
    last_position_ = item.position + (end - 1) / chunk.count;
#pragma unroll
    for (int f = 0; f < kFragments; ++f) {
      const ItemRows fragment = Rows(f);
      const int q_rows[2] = {fragment.used[0] ? item.row + fragment.tokens[0] : -1,
                             fragment.used[1] ? item.row + fragment.tokens[1] : -1};
#pragma unroll
      for (int d = 0; d < kDim / 16; ++d) {
        uint32_t(&to)[4] = q_[kQueries ? 0 : f][kQueries ? 0 : d];
        LoadQueries<kDim, kWay>(to, p, q_rows, fragment.heads, d, lane);
        if constexpr (kQueries) shared.queries[warp][f][d][lane] = {to[0], to[1], to[2], to[3]};
      }
#pragma unroll
      for (int d = 0; d < kDim / 8; ++d) shared.totals[warp][f][d][lane] = {0, 0, 0, 0};
      maximum_[f][0] = maximum_[f][1] = -INFINITY;
      weight_[f][0] = weight_[f][1] = 0;
      sum_[f].Clear();
    }
  }

  // Whether some row sees some key of the tile that begins at `key`.
  __device__ bool Sees(int key) const {
    return !idle_ && key <= last_position_ && key + kTileKeys > FirstKey(first_position_, p_.window);
  }

  __device__ void Score() {
#pragma unroll
    for (int f = 0; f < kFragments; ++f) {
#pragma unroll
      for (int n = 0; n < 2 * kTilePieces; ++n) scores_[f][n][0] = scores_[f][n][1] = scores_[f][n][2] = scores_[f][n][3] = 0;
    }
#pragma unroll
    for (int d = 0; d < kDim / 16; ++d) {
      uint32_t q[kFragments][4];
#pragma unroll
      for (int f = 0; f < kFragments; ++f) {
        if constexpr (kQueries) {
          const uint4 from = shared_.queries[warp_][f][d][lane_];
          q[f][0] = from.x, q[f][1] = from.y, q[f][2] = from.z, q[f][3] = from.w;
        } else {
#pragma unroll
          for (int i = 0; i < 4; ++i) q[f][i] = q_[f][d][i];
        }
      }
#pragma unroll
      for (int j = 0; j < kTilePieces; ++j) {
        uint32_t k[4];
        LoadKeys<kDim>(k, shared_.k[j], d, lane_);
#pragma unroll
        for (int f = 0; f < kFragments; ++f) ScorePiece<kDim>(scores_[f][2 * j], scores_[f][2 * j + 1], q[f], k);
      }
    }
  }

  __device__ void Add(int tile_key) {
    const bool masked = tile_key < FirstKey(last_position_, p_.window) || tile_key + kTileKeys - 1 > first_position_;
    uint32_t weights[kFragments][kTilePieces][4];
#pragma unroll
    for (int f = 0; f < kFragments; ++f) {
      Weigh<kDim>(weights[f], scores_[f], sum_[f], Rows(f).keys, tile_key, masked, p_, lane_);
    }
#pragma unroll
    for (int j = 0; j < kTilePieces; ++j) {
#pragma unroll
      for (int d = 0; d < kDim / 16; ++d) {
        uint32_t v[4];
        LoadValues<kDim>(v, shared_.v[j], d, lane_);
#pragma unroll
        for (int f = 0; f < kFragments; ++f) AddValues<kDim>(sum_[f], weights[f][j], v, d);
      }
#pragma unroll
      for (int f = 0; f < kFragments; ++f) AddWeights<kDim>(sum_[f], weights[f][j]);
    }
  }

  // The span's sums to the totals of the rows that see some of its keys.
  __device__ void EndSpan(int span) {
    if (idle_) return;
    const int begin = span * kAttentionSpan;
#pragma unroll
    for (int f = 0; f < kFragments; ++f) {
      const RowKeys keys = Rows(f).keys;
      float4(&totals)[kDim / 8][32] = shared_.totals[warp_][f];
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        if (keys.first[r] >= begin + kAttentionSpan || keys.last[r] < begin) continue;
        const Fold fold(maximum_[f][r], __fmul_rn(sum_[f].maximum[r], p_.factor));
        weight_[f][r] = fold(weight_[f][r], sum_[f].weight[2 * r]);
#pragma unroll
        for (int d = 0; d < kDim / 8; ++d) {
          float2& total = reinterpret_cast<float2*>(&totals[d][lane_])[r];
          total = {fold(total.x, sum_[f].sums[d][2 * r]), fold(total.y, sum_[f].sums[d][2 * r + 1])};
        }
      }
      sum_[f].Clear();
    }
  }

  __device__ void Store() {
    if (idle_) return;
#pragma unroll
    for (int f = 0; f < kFragments; ++f) {
      const ItemRows rows = Rows(f);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        if (!rows.used[r]) continue;
        const float factor = Normaliser(maximum_[f][r], weight_[f][r], p_.sinks, rows.heads[r]);
#pragma unroll
        for (int d = 0; d < kDim / 8; ++d) {
          const float2 total = reinterpret_cast<const float2*>(&shared_.totals[warp_][f][d][lane_])[r];
          StoreOutPair<kDim, kWay>(p_, item_.row + rows.tokens[r], rows.heads[r], d * 8 + lane_ % 4 * 2,
                                   __fmul_rn(total.x, factor), __fmul_rn(total.y, factor));
        }
      }
    }
  }

 private:
  static constexpr int kFragments = PrefillShared<kDim>::kFragments;
  static constexpr bool kQueries = PrefillShared<kDim>::kQueries;

  // Made anew where it is needed: it would take registers all the time.
  __device__ ItemRows Rows(int f) const {
    return ItemRows((warp_ * kFragments + f) * 16, item_.tokens, item_.position, chunk_, p_.window, lane_);
  }

  PrefillShared<kDim>& shared_;
  const AttentionParams& p_;
  const PrefillItem& item_;
  const HeadChunk& chunk_;
  int warp_, lane_;
  bool idle_;
  int first_position_, last_position_;
  uint32_t q_[kQueries ? 1 : kFragments][kQueries ? 1 : kDim / 16][4];
  float scores_[kFragments][2 * kTilePieces][4];
  SpanSum<kDim> sum_[kFragments];
  float maximum_[kFragments][2], weight_[kFragments][2];  // of the totals
};

template <int kDim, KvWay kWay>
__device__ void ComputePrefill(const AttentionParams& p, PrefillShared<kDim>& shared, const PrefillItem& item,
                               const HeadChunk& chunk, int warp, int lane) {
  const int last = item.position + item.tokens - 1, first = FirstKey(item.position, p.window);
  const KvHead head(p, item.seq, chunk.kv_head, first, last);
  int tile = first / kTileKeys;
  const int end = last / kTileKeys + 1;
  SpanBlocks<kWay> blocks, next_blocks;
  blocks.Load(p, head, tile / kTilesASpan, lane);
  LoadPiece<kDim, kWay>(shared.k[warp], p, head, blocks, tile * kTileKeys + warp * kPieceKeys, false, lane);
  CommitAsyncCopies();
  next_blocks.Load(p, head, tile / kTilesASpan + 1, lane);
  PrefillWarp<kDim, kWay> rows(shared, p, item, chunk, warp, lane);
#pragma unroll 1
  for (; tile < end; ++tile) {
    const int key = tile * kTileKeys;
    const bool sees = rows.Sees(key), span_ends = tile % kTilesASpan == kTilesASpan - 1 || tile + 1 == end;
    AwaitAsyncCopies<0>();
    __syncthreads();  // the keys are there, and nobody reads the values before any more
    LoadPiece<kDim, kWay>(shared.v[warp], p, head, blocks, key + warp * kPieceKeys, true, lane);
    CommitAsyncCopies();
    if (sees) rows.Score();
    AwaitAsyncCopies<0>();
    __syncthreads();  // the values are there, and nobody reads the keys any more
    if (tile % kTilesASpan == kTilesASpan - 1) {
      blocks = next_blocks;
      next_blocks.Load(p, head, tile / kTilesASpan + 2, lane);
    }
    if (tile + 1 < end) {
      LoadPiece<kDim, kWay>(shared.k[warp], p, head, blocks, key + kTileKeys + warp * kPieceKeys, false, lane);
    }
    CommitAsyncCopies();
    if (sees) rows.Add(key);
    if (span_ends) rows.EndSpan(tile / kTilesASpan);
  }
  rows.Store();
  __syncthreads();  // before the next item's copies
}

// grid: x over items, y over KV heads x chunks of their groups.
template <int kDim, KvWay kWay>
__global__ void __launch_bounds__(kPrefillWarps * 32) PrefillKernel(const __grid_constant__ AttentionParams p) {
  extern __shared__ __align__(16) unsigned char memory[];
  auto& shared = *reinterpret_cast<PrefillShared<kDim>*>(memory);
  const AttentionPlanHeader& header = *reinterpret_cast<const AttentionPlanHeader*>(p.plan);
  const PrefillItem* items = reinterpret_cast<const PrefillItem*>(p.plan + header.prefill_at);
  const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32, count = header.prefills;
  const HeadChunk chunk(p, int(blockIdx.y));
  for (int i = int(blockIdx.x); i < count; i += int(gridDim.x)) {
    const PrefillItem item = items[i];
    ComputePrefill<kDim, kWay>(p, shared, item, chunk, warp, lane);
  }
}

}  // namespace sluice::kernels::cuda
