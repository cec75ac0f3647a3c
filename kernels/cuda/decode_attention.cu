#include <cfloat>

#include "kernels/cuda/async_copy.cuh"
#include "kernels/cuda/decode_attention.h"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/warp.cuh"

namespace sluice::kernels::cuda {
namespace {

constexpr int kBlock = 16;  // tokens
constexpr int kWarps = 4;
constexpr int kThreads = kWarps * 32;
constexpr int kQueries = 16;  // rows of a fragment
constexpr int kSpanBlocks = kDecodeSpan / kBlock;
constexpr float kLog2E = 1.4426950408889634f;

// A KV block of one head as a warp keeps it: rows are padded by 16 bytes, so that eight of them lie in different banks.
template <int kDim>
struct Tile {
  static constexpr int kStride = kDim + 8;
  __nv_bfloat16 rows[kBlock][kStride];
};

template <int kDim>
struct Stage {
  Tile<kDim> k, v;
};

// What a block needs of shared memory: first the stages of its warps, then, in the same place, their results.
template <int kDim>
struct Shared {
  static constexpr int kStages = 2;
  union {
    Stage<kDim> stages[kWarps][kStages];
    float sums[kWarps][kQueries][kDim];
  };
  float maxima[kWarps][kQueries], weights[kWarps][kQueries];
};

// One span's result of one query head: a sum of values, weighted by exp2(score - maximum), and the sum of the weights.
struct SpanResult {
  float maximum, weight;
};

// [rows][heads][spans] results, then [rows][heads][spans][head_dim] sums.
struct Workspace {
  SpanResult* results;
  float* sums;
  int spans;

  __host__ __device__ Workspace(const DecodeAttentionArgs& a)
      : results(static_cast<SpanResult*>(a.workspace)),
        sums(reinterpret_cast<float*>(results + size_t(a.rows) * a.heads * Spans(a))),
        spans(Spans(a)) {}
  __host__ __device__ static int Spans(const DecodeAttentionArgs& a) {
    return (a.max_context + kDecodeSpan - 1) / kDecodeSpan;
  }
  __device__ size_t Index(const DecodeAttentionArgs& a, int row, int head, int span) const {
    return (size_t(row) * a.heads + head) * spans + span;
  }
};

// Tokens past the context become zeros: what lies there may be no number, which no weight of zero would hide.
template <int kDim>
__device__ void LoadTile(Tile<kDim>& tile, const __nv_bfloat16* from, int tokens, int lane) {
  constexpr int kChunks = kDim / 8;  // of 16 bytes, in a row
#pragma unroll
  for (int i = lane; i < kBlock * kChunks; i += 32) {
    CopyAsync16(&tile.rows[i / kChunks][i % kChunks * 8], from + i * 8, i / kChunks < tokens);
  }
}

// The warp's own copies of one KV block; an empty group where there is none, so that groups count alike.
template <int kDim>
__device__ void LoadStage(Stage<kDim>& stage, const DecodeAttentionArgs& a, int row, int kv_head, int block, int end,
                          int lane) {
  if (block < end) {
    const size_t head_size = size_t(kBlock) * kDim;
    const size_t id = size_t(a.block_table[size_t(row) * a.max_blocks + block]);
    const __nv_bfloat16* k = a.kv + (id * 2 * a.kv_heads + kv_head) * head_size;
    const int tokens = a.context_len[row] - block * kBlock;
    LoadTile(stage.k, k, tokens, lane);
    LoadTile(stage.v, k + a.kv_heads * head_size, tokens, lane);
  }
  CommitAsyncCopies();
}

// The queries of a KV head's group, scaled, as the A fragments of one row of the batch; rows beyond the group are
// zeros.
template <int kDim>
__device__ void LoadQueries(uint32_t (&q)[kDim / 16][4], const DecodeAttentionArgs& a, int row, int kv_head, int lane) {
  const int group = a.heads / a.kv_heads;
  const __nv_bfloat16* from = a.q + (size_t(row) * a.heads + kv_head * group) * kDim;
#pragma unroll
  for (int k = 0; k < kDim / 16; ++k) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int query = lane / 4 + i % 2 * 8, dim = k * 16 + lane % 4 * 2 + i / 2 * 8;
      q[k][i] = query < group ? *reinterpret_cast<const uint32_t*>(from + query * kDim + dim) : 0;
    }
  }
}

// What a warp knows of its keys so far, as D fragments: lane l holds the queries l / 4 and l / 4 + 8.
template <int kDim>
struct Running {
  float sums[kDim / 8][4] = {};
  float maximum[2] = {-FLT_MAX, -FLT_MAX};
  float weight[2] = {0, 0};
};

// Scores of 16 keys, [16 queries][2 x 8 keys] as D fragments.
template <int kDim>
__device__ void Score(float (&scores)[2][4], const uint32_t (&q)[kDim / 16][4], const Tile<kDim>& k, int lane) {
#pragma unroll
  for (int d = 0; d < kDim / 16; ++d) {
    uint32_t keys[4];  // B fragments of keys 0..7 and 8..15
    const int key = lane % 8 + lane / 16 * 8, dim = d * 16 + lane / 8 % 2 * 8;
    LoadMatrices4(keys, &k.rows[key][dim]);
    MultiplyAdd(scores[0], q[d], {keys[0], keys[1]});
    MultiplyAdd(scores[1], q[d], {keys[2], keys[3]});
  }
}

template <int kDim>
__device__ void Add(Running<kDim>& run, float (&scores)[2][4], const Tile<kDim>& v, int keys, float scale, int lane) {
  // In units of log 2; a key past the context has no weight.
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int key = half * 8 + lane % 4 * 2 + i % 2;
      scores[half][i] = key < keys ? scores[half][i] * scale : -FLT_MAX;
    }
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float here =
        fmaxf(fmaxf(scores[0][2 * r], scores[0][2 * r + 1]), fmaxf(scores[1][2 * r], scores[1][2 * r + 1]));
    const float maximum = fmaxf(run.maximum[r], QuadMax(here));
    const float shrink = exp2f(run.maximum[r] - maximum);
    run.maximum[r] = maximum;
    float weight = 0;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int i = 2 * r; i < 2 * r + 2; ++i) {
        const int key = half * 8 + lane % 4 * 2 + i % 2;
        scores[half][i] = key < keys ? exp2f(scores[half][i] - maximum) : 0;
        weight += scores[half][i];
      }
    }
    run.weight[r] = run.weight[r] * shrink + QuadSum(weight);
#pragma unroll
    for (int d = 0; d < kDim / 8; ++d) {
      run.sums[d][2 * r] *= shrink;
      run.sums[d][2 * r + 1] *= shrink;
    }
  }
  // The weights are an A fragment already.
  const uint32_t weights[4] = {PackBf16(scores[0][0], scores[0][1]), PackBf16(scores[0][2], scores[0][3]),
                               PackBf16(scores[1][0], scores[1][1]), PackBf16(scores[1][2], scores[1][3])};
#pragma unroll
  for (int d = 0; d < kDim / 16; ++d) {
    uint32_t values[4];  // B fragments of dims 16 d .. and 16 d + 8 ..
    LoadMatrices4Transposed(values, &v.rows[lane % 16][d * 16 + lane / 16 * 8]);
    MultiplyAdd(run.sums[2 * d], weights, {values[0], values[1]});
    MultiplyAdd(run.sums[2 * d + 1], weights, {values[2], values[3]});
  }
}

template <int kDim>
__device__ void Store(Shared<kDim>& shared, const Running<kDim>& run, int warp, int lane) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int query = lane / 4 + 8 * r;
#pragma unroll
    for (int d = 0; d < kDim / 8; ++d) {
      shared.sums[warp][query][d * 8 + lane % 4 * 2] = run.sums[d][2 * r];
      shared.sums[warp][query][d * 8 + lane % 4 * 2 + 1] = run.sums[d][2 * r + 1];
    }
    if (lane % 4 == 0) {
      shared.maxima[warp][query] = run.maximum[r];
      shared.weights[warp][query] = run.weight[r];
    }
  }
}

// One span of one KV head of one row.
template <int kDim>
__global__ void __launch_bounds__(kThreads) SpanKernel(const DecodeAttentionArgs a) {
  extern __shared__ __align__(16) unsigned char memory[];
  Shared<kDim>& shared = *reinterpret_cast<Shared<kDim>*>(memory);
  const int kv_head = int(blockIdx.x), span = int(blockIdx.y), row = int(blockIdx.z);
  const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
  const int context = a.context_len[row];
  if (span * kDecodeSpan >= context) return;  // the whole block

  const int first = span * kSpanBlocks;
  const int end = min(first + kSpanBlocks, (context + kBlock - 1) / kBlock);
  uint32_t q[kDim / 16][4];
  LoadQueries<kDim>(q, a, row, kv_head, lane);
  Running<kDim> run;
  Stage<kDim>(&stages)[2] = shared.stages[warp];
  LoadStage(stages[0], a, row, kv_head, first + warp, end, lane);
  int stage = 0;
  for (int block = first + warp; block < end; block += kWarps, stage ^= 1) {
    LoadStage(stages[stage ^ 1], a, row, kv_head, block + kWarps, end, lane);
    AwaitAsyncCopies<1>();
    __syncwarp();
    float scores[2][4] = {};
    Score<kDim>(scores, q, stages[stage].k, lane);
    Add<kDim>(run, scores, stages[stage].v, context - block * kBlock, a.scale * kLog2E, lane);
    __syncwarp();  // before the other lanes' next copies overwrite the stage
  }
  AwaitAsyncCopies<0>();
  __syncthreads();  // nobody reads stages any more
  Store(shared, run, warp, lane);
  __syncthreads();

  const int group = a.heads / a.kv_heads;
  const Workspace workspace(a);
  for (int i = int(threadIdx.x); i < group * kDim; i += kThreads) {
    const int query = i / kDim, dim = i % kDim;
    float maximum = -FLT_MAX, sum = 0, weight = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) maximum = fmaxf(maximum, shared.maxima[w][query]);
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      const float share = exp2f(shared.maxima[w][query] - maximum);
      sum = fmaf(shared.sums[w][query][dim], share, sum);
      weight = fmaf(shared.weights[w][query], share, weight);
    }
    const size_t at = workspace.Index(a, row, kv_head * group + query, span);
    workspace.sums[at * kDim + dim] = sum;
    if (dim == 0) workspace.results[at] = {maximum, weight};
  }
}

// The spans of one query head of one row, in order; a thread a dim.
template <int kDim>
__global__ void __launch_bounds__(kDim) MergeKernel(const DecodeAttentionArgs a) {
  const int head = int(blockIdx.x), row = int(blockIdx.y), dim = int(threadIdx.x);
  const int spans = (a.context_len[row] + kDecodeSpan - 1) / kDecodeSpan;
  const Workspace workspace(a);
  const size_t first = workspace.Index(a, row, head, 0);
  float maximum = -FLT_MAX, sum = 0, weight = 0;
  for (int s = 0; s < spans; ++s) maximum = fmaxf(maximum, workspace.results[first + s].maximum);
  for (int s = 0; s < spans; ++s) {
    const float share = exp2f(workspace.results[first + s].maximum - maximum);
    sum = fmaf(workspace.sums[(first + s) * kDim + dim], share, sum);
    weight = fmaf(workspace.results[first + s].weight, share, weight);
  }
  a.out[(size_t(row) * a.heads + head) * kDim + dim] = __float2bfloat16_rn(sum / weight);
}

template <int kDim>
cudaError_t Run(const DecodeAttentionArgs& a, cudaStream_t stream) {
  constexpr size_t kShared = sizeof(Shared<kDim>);
  const cudaError_t allowed =
      cudaFuncSetAttribute(SpanKernel<kDim>, cudaFuncAttributeMaxDynamicSharedMemorySize, int(kShared));
  if (allowed != cudaSuccess) return allowed;
  const dim3 grid(unsigned(a.kv_heads), unsigned(Workspace::Spans(a)), unsigned(a.rows));
  SpanKernel<kDim><<<grid, kThreads, kShared, stream>>>(a);
  if (const cudaError_t launched = cudaGetLastError(); launched != cudaSuccess) return launched;
  MergeKernel<kDim><<<dim3(unsigned(a.heads), unsigned(a.rows)), kDim, 0, stream>>>(a);
  return cudaGetLastError();
}

}  // namespace

size_t DecodeAttentionWorkspace(const DecodeAttentionArgs& a) {
  return size_t(a.rows) * a.heads * Workspace::Spans(a) * (sizeof(SpanResult) + a.head_dim * sizeof(float));
}

cudaError_t DecodeAttention(const DecodeAttentionArgs& a, cudaStream_t stream) {
  if (a.rows < 0 || a.kv_heads <= 0 || a.heads % a.kv_heads != 0 || a.heads / a.kv_heads > kQueries ||
      a.max_context <= 0 || a.max_context > a.max_blocks * kBlock) {
    return cudaErrorInvalidValue;
  }
  if (a.rows == 0) return cudaSuccess;
  if (a.head_dim == 64) return Run<64>(a, stream);
  if (a.head_dim == 128) return Run<128>(a, stream);
  return cudaErrorInvalidValue;
}

}  // namespace sluice::kernels::cuda
