#include <climits>

#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/attention/attention_launch.cuh"

namespace sluice::kernels::cuda {

extern template cudaError_t LaunchAttention<64>(const AttentionLaunch&, cudaStream_t);
extern template cudaError_t LaunchAttention<80>(const AttentionLaunch&, cudaStream_t);
extern template cudaError_t LaunchAttention<96>(const AttentionLaunch&, cudaStream_t);
extern template cudaError_t LaunchAttention<128>(const AttentionLaunch&, cudaStream_t);
extern template cudaError_t LaunchAttention<256>(const AttentionLaunch&, cudaStream_t);

namespace {

constexpr float kLog2E = 1.4426950408889634f;
// Of the workspace: the maxima and weights, then, from a multiple of 256 on, the sums.
size_t ResultBytes(int partials, int heads) {
  return (size_t(partials) * heads * sizeof(float2) + 255) / 256 * 256;
}

bool Aligned(const void* p, size_t to) {
  return reinterpret_cast<uintptr_t>(p) % to == 0;
}

// The sizes that have kernels of their own, and those that others are padded to. SLUICE_ATTENTION_FEW_SIZES: fewer, for
// builds with a sanitizer, where each takes minutes.
bool Exact(int head_dim) {
#if !defined(SLUICE_ATTENTION_FEW_SIZES)
  if (head_dim == 80 || head_dim == 96) return true;
#endif
  return head_dim == 64 || head_dim == 128 || head_dim == 256;
}
int PaddedHead(int head_dim) {
  return head_dim <= 64 ? 64 : head_dim <= 128 ? 128 : 256;
}

KvWay WayFor(const AttentionArgs& a) {
  const int d = a.layout.head_dim;
  const bool aligned = a.layout.block_size % kPieceKeys == 0 && Aligned(a.kv, 16) && Aligned(a.q, 4) &&
                       Aligned(a.out, 4) && a.q_stride % 2 == 0 && a.out_stride % 2 == 0;
  if (!aligned) return KvWay::kAny;
  if (a.layout.dtype == KvDType::kInt8) return d == 64 || d == 128 ? KvWay::kAlignedInt8 : KvWay::kAny;
  return Exact(d) ? KvWay::kAligned : KvWay::kAny;
}

bool Valid(const AttentionArgs& a) {
  const KvLayout& l = a.layout;
  return (l.dtype == KvDType::kBF16 || l.dtype == KvDType::kInt8) && l.head_dim > 0 && l.head_dim <= 256 &&
         l.head_dim == a.shape.head_dim && l.block_size > 0 && a.shape.group > 0 && a.kv_heads > 0 &&
         a.first_kv_head >= 0 && a.first_kv_head + a.kv_heads <= l.num_kv_heads && a.shape.window >= 0 && a.scale > 0 &&
         a.soft_cap >= 0 && a.capacity.spans >= 0 && a.capacity.merges >= 0 && a.capacity.prefills >= 0 &&
         (a.capacity.spans == 0) == (a.capacity.merges == 0);
}

AttentionParams ParamsOf(const AttentionArgs& a) {
  const KvLayout& l = a.layout;
  AttentionParams p{};
  p.q = a.q;
  p.out = a.out;
  p.q_stride = a.q_stride;
  p.out_stride = a.out_stride;
  p.kv = static_cast<const unsigned char*>(a.kv) + a.first_kv_head * l.head_bytes();
  p.block_bytes = int64_t(l.block_bytes());
  p.plane_bytes = int64_t(l.plane_bytes());
  p.head_bytes = int64_t(l.head_bytes());
  p.scales_offset = int64_t(l.scales_offset());
  p.block_table = a.block_table;
  p.max_blocks = a.max_blocks;
  p.block_size = l.block_size;
  p.head_dim = l.head_dim;
  p.int8 = l.dtype == KvDType::kInt8;
  p.group = a.shape.group;
  p.chunks = (a.shape.group + kSpanItemRows - 1) / kSpanItemRows;
  p.heads = a.kv_heads * a.shape.group;
  p.plan = a.plan;
  p.results = static_cast<float2*>(a.workspace);
  p.sums =
      reinterpret_cast<float*>(static_cast<unsigned char*>(a.workspace) + ResultBytes(a.capacity.partials, p.heads));
  p.factor = (a.soft_cap > 0 ? 1 : a.scale) * kLog2E;
  p.scale_cap = a.soft_cap > 0 ? a.scale / a.soft_cap : 0;
  p.cap = a.soft_cap;
  p.window = a.shape.window > 0 ? a.shape.window : INT_MAX;
  p.sinks = a.sinks;
  return p;
}

}  // namespace

size_t AttentionWorkspace(int partials, int heads, int head_dim) {
  return ResultBytes(partials, heads) + size_t(partials) * heads * PaddedHead(head_dim) * sizeof(float);
}

cudaError_t Attention(const AttentionArgs& a, cudaStream_t stream) {
  if (!Valid(a)) return cudaErrorInvalidValue;
  const AttentionLaunch launch{ParamsOf(a), a.capacity, a.kv_heads, WayFor(a)};
  switch (launch.way == KvWay::kAny ? PaddedHead(a.layout.head_dim) : a.layout.head_dim) {
    case 64:
      return LaunchAttention<64>(launch, stream);
#if !defined(SLUICE_ATTENTION_FEW_SIZES)
    case 80:
      return LaunchAttention<80>(launch, stream);
    case 96:
      return LaunchAttention<96>(launch, stream);
#endif
    case 128:
      return LaunchAttention<128>(launch, stream);
    default:
      return LaunchAttention<256>(launch, stream);
  }
}

}  // namespace sluice::kernels::cuda
