// Prefill items (FlashAttention-2; Dao 2023): a block an item and KV head, each warp 16 or 32 rows (tokens x heads of
// the group) against tiles of 64 keys that all warps share; a warp brings in a quarter of each tile. The values of a
// tile come while its scores are computed, the next keys while values are added. The sum over spans waits in shared
// memory while a span's is in registers.
#pragma once

#include "kernels/cuda/attention/kv_pieces.cuh"
#include "kernels/cuda/attention/online_softmax.cuh"
#include "kernels/cuda/attention/span_kernel.cuh"

namespace sluice::kernels::cuda {

inline constexpr int kPrefillWarps = kTilePieces;

template <int kDim, KvWay kWay>
struct PrefillShared {
  static constexpr int kFragments = PrefillItemRows(kDim) / (16 * kPrefillWarps);  // of 16 rows, a warp
  static constexpr bool kInt8 = kWay == KvWay::kAlignedInt8;
  Piece<kDim> k[kTilePieces], v[kTilePieces];
  StagedPiece<kDim, kWay> staged_k[kInt8 ? kTilePieces : 0], staged_v[kInt8 ? kTilePieces : 0];
  struct Warp {
    // What registers have no room for. Each lane's own:
    float4 totals[kFragments][kDim / 8][32];
    uint4 queries[kFragments][kDim / 16][32];
    // Of all lanes; by row, what the totals belong to, and the last key that the row sees:
    float2 results[kFragments][16];
    int last[kFragments][16];
    float4 state[kFragments > 1 ? kFragments : 1][kFragments > 1 ? 32 : 1];
    KvHead head;
    int first_position, last_position;  // of the warp's rows; last -1: it has none
  } warps[kPrefillWarps];
};

// A warp's rows of an item, and what it knows of them.
template <int kDim, KvWay kWay>
class PrefillWarp {
 public:
  using Scores = float[PrefillShared<kDim, kWay>::kFragments][2 * kTilePieces][4];

  __device__ PrefillWarp(PrefillShared<kDim, kWay>& block, const AttentionParams& params, const PrefillItem& item,
                         const HeadChunk& chunk, int warp, int lane)
      : shared_(block.warps[warp]), p_(params), lane_(lane) {
    const int rows = item.tokens * chunk.count, begin = warp * kFragments * 16;
    const int end = min(rows, begin + kFragments * 16);
    if (lane == 0) {
      shared_.head = KvHead(params, item.seq, chunk.kv_head, FirstKey(item.position, params.window),
                            item.position + item.tokens - 1);
      shared_.first_position = item.position + begin / chunk.count;
      shared_.last_position = begin < rows ? item.position + (end - 1) / chunk.count : -1;
    }
#pragma unroll
    for (int f = 0; f < kFragments; ++f) {
      const ItemRows fragment(begin + f * 16, item.tokens, item.position, chunk, lane);
      if (lane % 4 == 0) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          shared_.last[f][lane / 4 + 8 * r] = fragment.keys.last[r];
          shared_.results[f][lane / 4 + 8 * r] = {-INFINITY, 0};
        }
      }
      const int q_rows[2] = {fragment.used[0] ? item.row + fragment.tokens[0] : -1,
                             fragment.used[1] ? item.row + fragment.tokens[1] : -1};
#pragma unroll
      for (int d = 0; d < kDim / 16; ++d) {
        uint32_t q[4];
        LoadQueries<kDim, kWay>(q, p_, q_rows, fragment.heads, d, lane);
        shared_.queries[f][d][lane] = {q[0], q[1], q[2], q[3]};
      }
#pragma unroll
      for (int d = 0; d < kDim / 8; ++d) shared_.totals[f][d][lane] = {0, 0, 0, 0};
      sum_[f].Clear();
      PutState(f);
    }
    __syncwarp();
  }

  // Whether some row sees some key of the tile that begins at `key`.
  __device__ bool Sees(int key) const {
    return key <= shared_.last_position && key + kTileKeys > FirstKey(shared_.first_position, p_.window);
  }

  static __device__ void Clear(Scores& scores) {
#pragma unroll
    for (int f = 0; f < kFragments; ++f) {
#pragma unroll
      for (int i = 0; i < 8 * kTilePieces; ++i) scores[f][i / 4][i % 4] = 0;
    }
  }

  __device__ void Score(Scores& scores, const Piece<kDim> (&keys)[kTilePieces]) {
#pragma unroll
    for (int d = 0; d < kDim / 16; ++d) {
      uint32_t q[kFragments][4];
#pragma unroll
      for (int f = 0; f < kFragments; ++f) {
        const uint4 from = shared_.queries[f][d][lane_];
        q[f][0] = from.x, q[f][1] = from.y, q[f][2] = from.z, q[f][3] = from.w;
      }
#pragma unroll
      for (int j = 0; j < kTilePieces; ++j) {
        uint32_t k[4];
        LoadKeys<kDim>(k, keys[j], d, lane_);
#pragma unroll
        for (int f = 0; f < kFragments; ++f) ScorePiece<kDim>(scores[f][2 * j], scores[f][2 * j + 1], q[f], k);
      }
    }
  }

  __device__ void Add(Scores& scores, const Piece<kDim> (&values)[kTilePieces], int tile_key) {
    const bool masked =
        tile_key < FirstKey(shared_.last_position, p_.window) || tile_key + kTileKeys - 1 > shared_.first_position;
#pragma unroll
    for (int f = 0; f < kFragments; ++f) CapAndMask(scores[f], LastKeys(f), tile_key, masked, p_, lane_);
    uint32_t weights[kFragments][kTilePieces][4];
#pragma unroll
    for (int f = 0; f < kFragments; ++f) {
      TakeState(f);
      Weigh<kDim>(weights[f], scores[f], sum_[f], p_);
      AddWeights<kDim>(sum_[f], weights[f]);
      PutState(f);
    }
#pragma unroll
    for (int j = 0; j < kTilePieces; ++j) {
#pragma unroll
      for (int d = 0; d < kDim / 16; ++d) {
        uint32_t v[4];
        LoadValues<kDim>(v, values[j], d, lane_);
#pragma unroll
        for (int f = 0; f < kFragments; ++f) AddValues<kDim>(sum_[f], weights[f][j], v, d);
      }
    }
  }

  // The span's sums to the totals of the rows that see some of its keys.
  __device__ void EndSpan(int span) {
    if (shared_.last_position < 0) return;
#pragma unroll
    for (int f = 0; f < kFragments; ++f) {
      const RowKeys keys = LastKeys(f);
      TakeState(f);
      float2 results[2];
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        float2& result = results[r] = shared_.results[f][lane_ / 4 + 8 * r];
        if (!SeesSpan(keys.last[r], span, p_.window)) continue;
        const Fold fold(result.x, __fmul_rn(sum_[f].maximum[r], p_.factor));
        result.y = fold(result.y, sum_[f].weight[r]);
#pragma unroll
        for (int d = 0; d < kDim / 8; ++d) {
          float2& total = Total(f, d, r);
          total = {fold(total.x, sum_[f].sums[d][2 * r]), fold(total.y, sum_[f].sums[d][2 * r + 1])};
        }
      }
      __syncwarp();  // all lanes of a row have read them
      if (lane_ % 4 == 0) {
        shared_.results[f][lane_ / 4] = results[0];
        shared_.results[f][lane_ / 4 + 8] = results[1];
      }
      sum_[f].Clear();
      PutState(f);
    }
  }

  __device__ void Store(const PrefillItem& item, const HeadChunk& chunk, int warp) {
    __syncwarp();
#pragma unroll
    for (int f = 0; f < kFragments; ++f) {
      const ItemRows rows((warp * kFragments + f) * 16, item.tokens, item.position, chunk, lane_);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        if (!rows.used[r]) continue;
        const float2 result = shared_.results[f][lane_ / 4 + 8 * r];
        const float factor = Normaliser(result.x, result.y, p_.sinks, rows.heads[r]);
#pragma unroll
        for (int d = 0; d < kDim / 8; ++d) {
          const float2 total = Total(f, d, r);
          StoreOutPair<kDim, kWay>(p_, item.row + rows.tokens[r], rows.heads[r], d * 8 + lane_ % 4 * 2,
                                   __fmul_rn(total.x, factor), __fmul_rn(total.y, factor));
        }
      }
    }
  }

 private:
  static constexpr int kFragments = PrefillShared<kDim, kWay>::kFragments;

  __device__ void TakeState(int f) {
    if constexpr (kFragments > 1) {
      const float4 state = shared_.state[f][lane_];
      sum_[f].maximum[0] = state.x, sum_[f].maximum[1] = state.y, sum_[f].weight[0] = state.z,
      sum_[f].weight[1] = state.w;
    }
  }
  __device__ void PutState(int f) {
    if constexpr (kFragments > 1) {
      shared_.state[f][lane_] = {sum_[f].maximum[0], sum_[f].maximum[1], sum_[f].weight[0], sum_[f].weight[1]};
    }
  }
  __device__ RowKeys LastKeys(int f) const {
    return {shared_.last[f][lane_ / 4], shared_.last[f][lane_ / 4 + 8]};
  }
  __device__ float2& Total(int f, int d, int r) {
    return reinterpret_cast<float2*>(&shared_.totals[f][d][lane_])[r];
  }

  typename PrefillShared<kDim, kWay>::Warp& shared_;
  const AttentionParams& p_;
  int lane_;
  SpanSum<kDim> sum_[kFragments];
};

__device__ inline const AttentionPlanHeader& Header(const AttentionParams& p) {
  return *reinterpret_cast<const AttentionPlanHeader*>(p.plan);
}
__device__ inline const PrefillItem* Prefills(const AttentionParams& p) {
  return reinterpret_cast<const PrefillItem*>(p.plan + Header(p).prefill_at);
}

// The warp's quarter of the tile that begins at `tile_key`.
template <int kDim, KvWay kWay>
__device__ inline void LoadQuarter(PrefillShared<kDim, kWay>& shared, const AttentionParams& p, const KvHead& head,
                                   const SpanBlocks<kDim, kWay>& blocks, int tile_key, bool values, int warp,
                                   int lane) {
  const int key = tile_key + warp * kPieceKeys;
  if constexpr (kWay == KvWay::kAlignedInt8) {
    LoadPiece<kDim, kWay>((values ? shared.staged_v : shared.staged_k)[warp], p, head, blocks, key, values, lane);
  } else {
    LoadPiece<kDim, kWay>((values ? shared.v : shared.k)[warp], p, head, blocks, key, values, lane);
  }
  CommitAsyncCopies();
}

// Until it is there for the warp; then the block needs a barrier.
template <int kDim, KvWay kWay>
__device__ inline void AwaitQuarter(PrefillShared<kDim, kWay>& shared, const KvHead& head, int tile_key, bool values,
                                    int warp, int lane) {
  AwaitAsyncCopies<0>();
  if constexpr (kWay == KvWay::kAlignedInt8) {
    __syncwarp();
    Dequantise<kDim>((values ? shared.v : shared.k)[warp], (values ? shared.staged_v : shared.staged_k)[warp], head,
                     tile_key + warp * kPieceKeys, lane);
  }
}

template <int kDim, KvWay kWay>
__device__ void ComputePrefill(const AttentionParams& p, PrefillShared<kDim, kWay>& shared, int item, int warp,
                               int lane) {
  PrefillWarp<kDim, kWay> rows(shared, p, Prefills(p)[item], HeadChunk(p, int(blockIdx.y)), warp, lane);
  const KvHead& head = shared.warps[warp].head;
  int tile = head.first / kTileKeys;
  SpanBlocks<kDim, kWay> blocks, next_blocks;
  blocks.Load(p, head, tile / kTilesASpan, lane);
  LoadQuarter<kDim, kWay>(shared, p, head, blocks, tile * kTileKeys, false, warp, lane);
  next_blocks.Load(p, head, tile / kTilesASpan + 1, lane);
#pragma unroll 1
  for (; tile * kTileKeys <= head.last; ++tile) {
    const int key = tile * kTileKeys;
    AwaitQuarter<kDim, kWay>(shared, head, key, false, warp, lane);
    __syncthreads();  // the keys are there, and nobody reads the values before any more
    LoadQuarter<kDim, kWay>(shared, p, head, blocks, key, true, warp, lane);
    const bool sees = rows.Sees(key);
    // Cleared on every way, or their registers would be taken from one tile to the next.
    typename PrefillWarp<kDim, kWay>::Scores scores;
    rows.Clear(scores);
    if (sees) rows.Score(scores, shared.k);
    AwaitQuarter<kDim, kWay>(shared, head, key, true, warp, lane);
    __syncthreads();  // the values are there, and nobody reads the keys any more
    const bool span_ends = tile % kTilesASpan == kTilesASpan - 1;
    if (span_ends) {
      blocks = next_blocks;
      next_blocks.Load(p, head, tile / kTilesASpan + 2, lane);
    }
    const bool more = key + kTileKeys <= head.last;
    if (more) LoadQuarter<kDim, kWay>(shared, p, head, blocks, key + kTileKeys, false, warp, lane);
    if (sees) rows.Add(scores, shared.v, key);
    if (span_ends || !more) rows.EndSpan(tile / kTilesASpan);
  }
  rows.Store(Prefills(p)[item], HeadChunk(p, int(blockIdx.y)), warp);
  __syncthreads();  // before the next item's copies
}

// grid: x over items, y over KV heads x chunks of their groups.
template <int kDim, KvWay kWay>
__global__ void __launch_bounds__(kPrefillWarps * 32) PrefillKernel(const __grid_constant__ AttentionParams p) {
  extern __shared__ __align__(16) unsigned char memory[];
  auto& shared = *reinterpret_cast<PrefillShared<kDim, kWay>*>(memory);
  const int warp = int(threadIdx.x / 32), lane = int(threadIdx.x % 32);
  for (int i = int(blockIdx.x); i < Header(p).prefills; i += int(gridDim.x)) {
    ComputePrefill<kDim, kWay>(p, shared, i, warp, lane);
  }
}

}  // namespace sluice::kernels::cuda
