#include <cmath>

#include "kernels/cuda/rows/rope_kv.h"
#include "kernels/kv_layout.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kMaxInt8HeadDim = 256;

struct Pair {
  __nv_bfloat16 first, second;
};

__device__ float2 RotateExactly(const __nv_bfloat16* head, int first, int second, float cosine, float sine) {
  const float a = __bfloat162float(head[first]), b = __bfloat162float(head[second]);
  return {__fmaf_rn(a, cosine, -__fmul_rn(b, sine)), __fmaf_rn(a, sine, __fmul_rn(b, cosine))};
}

__device__ Pair Rotate(const __nv_bfloat16* head, int first, int second, float cosine, float sine) {
  const float2 turned = RotateExactly(head, first, second, cosine, sine);
  return {__float2bfloat16_rn(turned.x), __float2bfloat16_rn(turned.y)};
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

// inverse: 1 / scale. One division a head, not one an element: each is a call.
__device__ int8_t Code(float x, float inverse) {
  return int8_t(max(-127, min(127, __float2int_rn(__fmul_rn(x, inverse)))));
}

// How int8 spreads a head (rope_kv.h).
struct Spreading {
  int block;    // a power of two
  float scale;  // 1 / sqrt(block)
};

// A head of a warp in shared memory, as f32.
__device__ void Spread(float* head, int head_dim, const Spreading& spreading, int lane) {
  for (int d = lane; d < head_dim; d += 32) {
    if ((uint32_t(d) * 0x9e3779b1u) >> 31 != 0) head[d] = -head[d];
  }
  __syncwarp();
  for (int h = 1; h < spreading.block; h *= 2) {
    for (int i = lane; i < head_dim / 2; i += 32) {
      const int at = i / h * 2 * h + i % h;
      const float x = head[at], y = head[at + h];
      head[at] = __fadd_rn(x, y);
      head[at + h] = __fsub_rn(x, y);
    }
    __syncwarp();
  }
  for (int d = lane; d < head_dim; d += 32) head[d] = __fmul_rn(head[d], spreading.scale);
  __syncwarp();
}

// A head of q, k or v to shared memory, rotated and spread as it should be.
__device__ void FetchHead(const RopeKvArgs& a, const Spreading& spreading, const float* rope, const __nv_bfloat16* from,
                          bool is_v, float* to, int lane) {
  for (int pair = lane; pair < (a.head_dim + 1) / 2; pair += 32) {
    const Turn turn = TurnOf(a, rope, pair, !is_v);
    const float2 moved = turn.rotates ? RotateExactly(from, turn.first, turn.second, turn.cosine, turn.sine)
                                      : float2{__bfloat162float(from[turn.first]), __bfloat162float(from[turn.second])};
    to[turn.first] = moved.x;
    to[turn.second] = moved.y;
  }
  __syncwarp();
  if (!is_v) Spread(to, a.head_dim, spreading, lane);
}

// A warp quantises a head of k or v.
__device__ void StoreInt8(const RopeKvArgs& a, const float* from, int row, int head, bool is_v, size_t head_bytes,
                          size_t scales, int lane) {
  float largest = 0;
  for (int d = lane; d < a.head_dim; d += 32) largest = Larger(largest, fabsf(from[d]));
  for (int distance = 16; distance > 0; distance /= 2) {
    largest = Larger(largest, __shfl_xor_sync(0xffffffffu, largest, distance));
  }
  const float scale = __fmul_rn(largest, 1.0f / 127), inverse = scale > 0 ? __frcp_rn(scale) : 0.0f;
  const size_t plane = size_t(is_v ? a.pool_kv_heads : 0) + a.first_kv_head + head;
  auto* slice = static_cast<unsigned char*>(a.kv) + (size_t(a.blocks[row]) * 2 * a.pool_kv_heads + plane) * head_bytes;
  const int slot = a.positions[row] % a.block_size;
  auto* to = reinterpret_cast<int8_t*>(slice) + size_t(slot) * a.head_dim;
  for (int d = lane; d < a.head_dim; d += 32) to[d] = Code(from[d], inverse);
  if (lane == 0) reinterpret_cast<float*>(slice + scales)[slot] = scale;
}

// A block a row; its warps take heads of q, k and v.
__global__ void __launch_bounds__(kThreads)
    RopeKvInt8Kernel(const RopeKvArgs a, const Spreading spreading, const size_t head_bytes, const size_t scales) {
  __shared__ float heads[kThreads / 32][kMaxInt8HeadDim];
  const int row = int(blockIdx.x), warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
  const float* rope = a.rope + a.positions[row] * a.rope_stride;
  float* const head = heads[warp];
  const int count = a.heads + (a.blocks[row] < 0 ? 0 : 2 * a.kv_heads);
  for (int i = warp; i < count; i += kThreads / 32) {
    const bool is_q = i < a.heads, is_v = i >= a.heads + a.kv_heads;
    const int kv_head = (i - a.heads) % a.kv_heads;
    __nv_bfloat16* const q = a.q + row * a.q_stride + i * a.head_dim;
    const __nv_bfloat16* from = is_q ? q : (is_v ? a.v : a.k) + row * a.kv_stride + kv_head * a.head_dim;
    FetchHead(a, spreading, rope, from, is_v, head, lane);
    if (is_q) {
      for (int d = lane; d < a.head_dim; d += 32) q[d] = __float2bfloat16_rn(head[d]);
    } else {
      StoreInt8(a, head, row, kv_head, is_v, head_bytes, scales, lane);
    }
    __syncwarp();  // nobody reads this head any more
  }
}

}  // namespace

cudaError_t RopeKv(const RopeKvArgs& args, cudaStream_t stream) {
  if (args.rows < 0 || args.heads <= 0 || args.kv_heads <= 0 || args.head_dim <= 0 || args.block_size <= 0 ||
      args.rotary_dim < 0 || args.rotary_dim % 2 != 0 || args.rotary_dim > args.head_dim ||
      args.first_kv_head + args.kv_heads > args.pool_kv_heads) {
    return cudaErrorInvalidValue;
  }
  if (args.int8 && args.head_dim > kMaxInt8HeadDim) return cudaErrorInvalidValue;
  if (args.rows == 0) return cudaSuccess;
  const unsigned rows = unsigned(args.rows);
  if (args.int8) {
    const KvLayout layout{1, args.pool_kv_heads, args.head_dim, args.block_size, KvDType::kInt8};
    const int block = args.head_dim & -args.head_dim;
    const Spreading spreading{block, float(1 / std::sqrt(double(block)))};
    RopeKvInt8Kernel<<<rows, kThreads, 0, stream>>>(args, spreading, layout.head_bytes(), layout.scales_offset());
  } else {
    RopeKvKernel<<<rows, kThreads, 0, stream>>>(args);
  }
  return cudaGetLastError();
}

}  // namespace sluice::kernels::cuda
