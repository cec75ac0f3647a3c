#include "kernels/cuda/rows/rope_kv.h"
#include "kernels/kv_layout.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kMaxPairsALane = 4;

struct Pair {
  __nv_bfloat16 first, second;
};

__device__ Pair Rotate(const __nv_bfloat16* head, int first, int second, float cosine, float sine) {
  const float a = __bfloat162float(head[first]), b = __bfloat162float(head[second]);
  return {__float2bfloat16_rn(__fmaf_rn(a, cosine, -__fmul_rn(b, sine))),
          __float2bfloat16_rn(__fmaf_rn(a, sine, __fmul_rn(b, cosine)))};
}

// Which elements of a head a pair has, and how they rotate. Where a head does not rotate, pairs are neighbours. An odd
// last element is a pair with itself.
struct Turn {
  int first, second;
  bool rotates;
  float cosine = 1, sine = 0;
};

__device__ Turn TurnOf(const RopeKvArgs& a, const float* rope, int pair, bool may_rotate) {
  const int rotating = a.rotary_dim / 2;
  const bool rotates = may_rotate && pair < rotating, apart = rotates && !a.interleaved;
  Turn turn{apart ? pair : 2 * pair, apart ? pair + rotating : min(2 * pair + 1, a.head_dim - 1), rotates};
  if (rotates) {
    turn.cosine = rope[pair];
    turn.sine = rope[rotating + pair];
  }
  return turn;
}

__device__ void RotateQuery(const RopeKvArgs& a, const float* rope, int row, int head, int pair) {
  const Turn turn = TurnOf(a, rope, pair, true);
  if (!turn.rotates) return;
  __nv_bfloat16* q = a.q + row * a.q_stride + head * a.head_dim;
  const Pair rotated = Rotate(q, turn.first, turn.second, turn.cosine, turn.sine);
  q[turn.first] = rotated.first;
  q[turn.second] = rotated.second;
}

// Of k, or of v, which does not rotate.
__device__ Pair Moved(const RopeKvArgs& a, const float* rope, int row, int head, bool is_v, int pair, Turn* turn) {
  const __nv_bfloat16* from = (is_v ? a.v : a.k) + row * a.kv_stride + head * a.head_dim;
  *turn = TurnOf(a, rope, pair, !is_v);
  if (!turn->rotates) return {from[turn->first], from[turn->second]};
  return Rotate(from, turn->first, turn->second, turn->cosine, turn->sine);
}

// A block a row; a thread takes pairs of elements: of q, then of k, then of v.
__global__ void __launch_bounds__(kThreads) RopeKvKernel(const RopeKvArgs a) {
  const int row = int(blockIdx.x), position = a.positions[row], block = a.blocks[row], pairs = (a.head_dim + 1) / 2;
  const float* rope = a.rope + position * a.rope_stride;
  const size_t head_size = size_t(a.block_size) * a.head_dim;
  __nv_bfloat16* slot = static_cast<__nv_bfloat16*>(a.kv) +
                        (size_t(block < 0 ? 0 : block) * 2 * a.pool_kv_heads + a.first_kv_head) * head_size +
                        size_t(position % a.block_size) * a.head_dim;
  for (int i = int(threadIdx.x); i < (a.heads + 2 * a.kv_heads) * pairs; i += kThreads) {
    const int head = i / pairs, pair = i % pairs;
    if (head < a.heads) {
      RotateQuery(a, rope, row, head, pair);
    } else if (block >= 0) {
      const bool is_v = head >= a.heads + a.kv_heads;
      const int kv_head = head - a.heads - (is_v ? a.kv_heads : 0);
      Turn turn;
      const Pair moved = Moved(a, rope, row, kv_head, is_v, pair, &turn);
      __nv_bfloat16* to = slot + (size_t(is_v ? a.pool_kv_heads : 0) + kv_head) * head_size;
      to[turn.first] = moved.first;
      to[turn.second] = moved.second;
    }
  }
}

// The larger; what is no number is the largest.
__device__ float Larger(float a, float b) {
  return a > b || isnan(a) ? a : b;
}

__device__ int8_t Code(float x, float scale) {
  return scale > 0 ? int8_t(max(-127, min(127, __float2int_rn(__fdiv_rn(x, scale))))) : int8_t(0);
}

// A warp quantises a head of k or v; lane l has its pairs l, l + 32, ...
__device__ void StoreInt8(const RopeKvArgs& a, const float* rope, int row, int head, bool is_v, size_t head_bytes,
                          size_t scales, int lane) {
  const int pairs = (a.head_dim + 1) / 2, position = a.positions[row];
  Pair moved[kMaxPairsALane];
  Turn turns[kMaxPairsALane];
  float largest = 0;
#pragma unroll
  for (int i = 0; i < kMaxPairsALane; ++i) {
    const int pair = lane + 32 * i;
    if (pair >= pairs) continue;
    moved[i] = Moved(a, rope, row, head, is_v, pair, &turns[i]);
    largest =
        Larger(largest, Larger(fabsf(__bfloat162float(moved[i].first)), fabsf(__bfloat162float(moved[i].second))));
  }
  for (int distance = 16; distance > 0; distance /= 2) {
    largest = Larger(largest, __shfl_xor_sync(0xffffffffu, largest, distance));
  }
  const float scale = __fdiv_rn(largest, 127.0f);
  const size_t plane = size_t(is_v ? a.pool_kv_heads : 0) + a.first_kv_head + head;
  auto* slice = static_cast<unsigned char*>(a.kv) + (size_t(a.blocks[row]) * 2 * a.pool_kv_heads + plane) * head_bytes;
  const int slot = position % a.block_size;
  auto* to = reinterpret_cast<int8_t*>(slice) + size_t(slot) * a.head_dim;
#pragma unroll
  for (int i = 0; i < kMaxPairsALane; ++i) {
    if (lane + 32 * i >= pairs) continue;
    to[turns[i].first] = Code(__bfloat162float(moved[i].first), scale);
    to[turns[i].second] = Code(__bfloat162float(moved[i].second), scale);
  }
  if (lane == 0) reinterpret_cast<float*>(slice + scales)[slot] = scale;
}

// A block a row; its warps take heads of k and v, its threads pairs of q.
__global__ void __launch_bounds__(kThreads)
    RopeKvInt8Kernel(const RopeKvArgs a, const size_t head_bytes, const size_t scales) {
  const int row = int(blockIdx.x), pairs = (a.head_dim + 1) / 2, thread = int(threadIdx.x);
  const float* rope = a.rope + a.positions[row] * a.rope_stride;
  for (int i = thread; i < a.heads * pairs; i += kThreads) RotateQuery(a, rope, row, i / pairs, i % pairs);
  if (a.blocks[row] < 0) return;  // of all threads alike
  for (int i = thread / 32; i < 2 * a.kv_heads; i += kThreads / 32) {
    StoreInt8(a, rope, row, i % a.kv_heads, i >= a.kv_heads, head_bytes, scales, thread % 32);
  }
}

}  // namespace

cudaError_t RopeKv(const RopeKvArgs& args, cudaStream_t stream) {
  if (args.rows < 0 || args.heads <= 0 || args.kv_heads <= 0 || args.head_dim <= 0 || args.block_size <= 0 ||
      args.rotary_dim < 0 || args.rotary_dim % 2 != 0 || args.rotary_dim > args.head_dim ||
      args.first_kv_head + args.kv_heads > args.pool_kv_heads) {
    return cudaErrorInvalidValue;
  }
  if (args.int8 && args.head_dim > 64 * kMaxPairsALane) return cudaErrorInvalidValue;
  if (args.rows == 0) return cudaSuccess;
  const unsigned rows = unsigned(args.rows);
  if (args.int8) {
    const KvLayout layout{1, args.pool_kv_heads, args.head_dim, args.block_size, KvDType::kInt8};
    RopeKvInt8Kernel<<<rows, kThreads, 0, stream>>>(args, layout.head_bytes(), layout.scales_offset());
  } else {
    RopeKvKernel<<<rows, kThreads, 0, stream>>>(args);
  }
  return cudaGetLastError();
}

}  // namespace sluice::kernels::cuda
