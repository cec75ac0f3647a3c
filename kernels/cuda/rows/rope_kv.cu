#include "kernels/cuda/rows/rope_kv.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int kThreads = 256;

struct Pair {
  __nv_bfloat16 first, second;
};

__device__ Pair Rotate(const __nv_bfloat16* head, int first, int second, float cosine, float sine) {
  const float a = __bfloat162float(head[first]), b = __bfloat162float(head[second]);
  return {__float2bfloat16_rn(__fmaf_rn(a, cosine, -__fmul_rn(b, sine))),
          __float2bfloat16_rn(__fmaf_rn(a, sine, __fmul_rn(b, cosine)))};
}

// A block a row; a thread takes pairs of elements: of q, then of k, then of v. Where a head does not rotate, pairs are
// neighbours. An odd last element is a pair with itself.
__global__ void __launch_bounds__(kThreads) RopeKvKernel(const RopeKvArgs a) {
  const int row = int(blockIdx.x), position = a.positions[row], block = a.blocks[row];
  const int pairs = (a.head_dim + 1) / 2, rotating = a.rotary_dim / 2;
  const float* rope = a.rope + position * a.rope_stride;
  const size_t head_size = size_t(a.block_size) * a.head_dim;
  __nv_bfloat16* slot = a.kv + (size_t(block < 0 ? 0 : block) * 2 * a.pool_kv_heads + a.first_kv_head) * head_size +
                        size_t(position % a.block_size) * a.head_dim;
  for (int i = int(threadIdx.x); i < (a.heads + 2 * a.kv_heads) * pairs; i += kThreads) {
    const int head = i / pairs, pair = i % pairs;
    const bool rotates = pair < rotating && head < a.heads + a.kv_heads;
    const bool apart = rotates && !a.interleaved;
    const int first = apart ? pair : 2 * pair;
    const int second = apart ? pair + rotating : min(2 * pair + 1, a.head_dim - 1);
    const float cosine = rotates ? rope[pair] : 1, sine = rotates ? rope[rotating + pair] : 0;
    if (head < a.heads) {
      if (!rotates) continue;
      __nv_bfloat16* q = a.q + row * a.q_stride + head * a.head_dim;
      const Pair rotated = Rotate(q, first, second, cosine, sine);
      q[first] = rotated.first;
      q[second] = rotated.second;
    } else if (block >= 0) {
      const bool is_v = head >= a.heads + a.kv_heads;
      const int kv_head = head - a.heads - (is_v ? a.kv_heads : 0);
      const __nv_bfloat16* from = (is_v ? a.v : a.k) + row * a.kv_stride + kv_head * a.head_dim;
      __nv_bfloat16* to = slot + (size_t(is_v ? a.pool_kv_heads : 0) + kv_head) * head_size;
      const Pair moved = rotates ? Rotate(from, first, second, cosine, sine) : Pair{from[first], from[second]};
      to[first] = moved.first;
      to[second] = moved.second;
    }
  }
}

}  // namespace

cudaError_t RopeKv(const RopeKvArgs& args, cudaStream_t stream) {
  if (args.rows < 0 || args.heads <= 0 || args.kv_heads <= 0 || args.head_dim <= 0 || args.block_size <= 0 ||
      args.rotary_dim < 0 || args.rotary_dim % 2 != 0 || args.rotary_dim > args.head_dim ||
      args.first_kv_head + args.kv_heads > args.pool_kv_heads) {
    return cudaErrorInvalidValue;
  }
  if (args.rows == 0) return cudaSuccess;
  RopeKvKernel<<<unsigned(args.rows), kThreads, 0, stream>>>(args);
  return cudaGetLastError();
}

}  // namespace sluice::kernels::cuda
