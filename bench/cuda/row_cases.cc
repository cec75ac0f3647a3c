#include <memory>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bench/cuda/device_data.h"
#include "bench/cuda/kernel_cases.h"
#include "kernels/cuda/rows/block_maxima.h"
#include "kernels/cuda/rows/embed.h"
#include "kernels/cuda/rows/rms_norm.h"
#include "kernels/cuda/rows/rope_kv.h"
#include "kernels/cuda/transfer/kv_copy.h"

namespace sluice::bench {
namespace {

namespace cuda = kernels::cuda;

// Arrays of one launch with what launches it.
struct Problem {
  DeviceData data;
  Launch launch;
};

// Copies of what `fill` makes, in turns.
template <typename Fill>
KernelCase Case(std::string kernel, std::string shape, double bytes, double flops, Fill fill) {
  return {std::move(kernel), std::move(shape), bytes, flops, [fill, bytes]() -> absl::StatusOr<Launch> {
            std::vector<std::shared_ptr<Problem>> copies;
            for (int i = 0; i < Copies(bytes); ++i) {
              copies.push_back(std::make_shared<Problem>());
              if (absl::Status status = fill(*copies.back()); !status.ok()) return status;
            }
            return
                [copies](int i, cudaStream_t stream) { return copies[size_t(i) % copies.size()]->launch(i, stream); };
          }};
}

// All of them, or the first error.
template <size_t n>
absl::Status Take(absl::StatusOr<void*> (&made)[n], void* (&to)[n]) {
  for (size_t i = 0; i < n; ++i) {
    if (!made[i].ok()) return made[i].status();
    to[i] = *made[i];
  }
  return absl::OkStatus();
}

KernelCase Copy(size_t bytes) {
  return Case("copy", absl::StrCat(bytes >> 20, " MiB"), 2.0 * double(bytes), 0, [=](Problem& p) {
    absl::StatusOr<void*> made[] = {p.data.Zeros(bytes), p.data.Zeros(bytes)};
    void* memory[2];
    if (absl::Status status = Take(made, memory); !status.ok()) return status;
    p.launch = [to = memory[0], from = memory[1], bytes](int, cudaStream_t stream) {
      return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream);
    };
    return absl::OkStatus();
  });
}

KernelCase Norm(int rows, int width) {
  const double n = double(rows) * width;
  return Case("norm", absl::StrCat(rows, " x ", width), n * 6, 4 * n, [=](Problem& p) {
    absl::StatusOr<void*> made[] = {p.data.Floats(size_t(n)), p.data.Floats(size_t(width)), p.data.Bf16(size_t(n))};
    void* memory[3];
    if (absl::Status status = Take(made, memory); !status.ok()) return status;
    cuda::RmsNormArgs args;
    args.x = static_cast<const float*>(memory[0]);
    args.weight = static_cast<const float*>(memory[1]);
    args.out = static_cast<__nv_bfloat16*>(memory[2]);
    args.x_stride = args.out_stride = args.width = width;
    args.rows = rows;
    p.launch = [args](int, cudaStream_t stream) { return cuda::RmsNorm(args, stream); };
    return absl::OkStatus();
  });
}

KernelCase Rope(int rows, int heads, int kv_heads) {
  constexpr int kHeadDim = 128, kBlock = 16;
  const size_t q = size_t(rows) * size_t(heads) * kHeadDim, kv = size_t(rows) * size_t(kv_heads) * kHeadDim;
  const double bytes = 2.0 * (2.0 * double(q) + 4.0 * double(kv));
  return Case("RoPE, KV write", absl::StrCat(rows, " rows"), bytes, 6.0 * double(q + kv), [=](Problem& p) {
    std::vector<int32_t> positions(static_cast<size_t>(rows)), blocks(static_cast<size_t>(rows));
    for (int i = 0; i < rows; ++i) positions[size_t(i)] = i, blocks[size_t(i)] = i / kBlock;
    const size_t pool = size_t(rows / kBlock + 1) * 2 * size_t(kv_heads) * kBlock * kHeadDim;
    absl::StatusOr<void*> made[] = {p.data.Bf16(q),
                                    p.data.Bf16(kv),
                                    p.data.Bf16(kv),
                                    p.data.Bf16(pool),
                                    p.data.Floats(size_t(rows) * kHeadDim),
                                    p.data.Copy(positions),
                                    p.data.Copy(blocks)};
    void* memory[7];
    if (absl::Status status = Take(made, memory); !status.ok()) return status;
    cuda::RopeKvArgs args;
    args.q = static_cast<__nv_bfloat16*>(memory[0]);
    args.k = static_cast<const __nv_bfloat16*>(memory[1]);
    args.v = static_cast<const __nv_bfloat16*>(memory[2]);
    args.kv = static_cast<__nv_bfloat16*>(memory[3]);
    args.rope = static_cast<const float*>(memory[4]);
    args.positions = static_cast<const int32_t*>(memory[5]);
    args.blocks = static_cast<const int32_t*>(memory[6]);
    args.q_stride = int64_t(heads) * kHeadDim;
    args.kv_stride = int64_t(kv_heads) * kHeadDim;
    args.rope_stride = args.rotary_dim = args.head_dim = kHeadDim;
    args.rows = rows;
    args.heads = heads;
    args.kv_heads = args.pool_kv_heads = kv_heads;
    args.block_size = kBlock;
    p.launch = [args](int, cudaStream_t stream) { return cuda::RopeKv(args, stream); };
    return absl::OkStatus();
  });
}

KernelCase Embed(int rows, int width, int vocab) {
  return Case("embedding", absl::StrCat(rows, " rows"), double(rows) * width * 6, 0, [=](Problem& p) {
    std::vector<int32_t> tokens(static_cast<size_t>(rows));
    for (int i = 0; i < rows; ++i) tokens[size_t(i)] = int32_t(int64_t(i) * 7919 % vocab);
    absl::StatusOr<void*> made[] = {p.data.Copy(tokens), p.data.Bf16(size_t(vocab) * size_t(width)),
                                    p.data.Zeros(size_t(rows) * size_t(width) * sizeof(float))};
    void* memory[3];
    if (absl::Status status = Take(made, memory); !status.ok()) return status;
    cuda::EmbedArgs args;
    args.tokens = static_cast<const int32_t*>(memory[0]);
    args.bf16_table = static_cast<const __nv_bfloat16*>(memory[1]);
    args.x = static_cast<float*>(memory[2]);
    args.table_stride = args.x_stride = args.width = width;
    args.rows = rows;
    p.launch = [args](int, cudaStream_t stream) { return cuda::Embed(args, stream); };
    return absl::OkStatus();
  });
}

KernelCase Maxima(int rows, int vocab) {
  const double n = double(rows) * vocab;
  return Case("maxima of logits", absl::StrCat(rows, " x ", vocab), n * 4, n, [=](Problem& p) {
    const int blocks = (vocab + 63) / 64;
    absl::StatusOr<void*> made[] = {p.data.Floats(size_t(n)), p.data.Zeros(size_t(rows) * size_t(blocks) * 4)};
    void* memory[2];
    if (absl::Status status = Take(made, memory); !status.ok()) return status;
    const cuda::BlockMaximaArgs args{
        static_cast<const float*>(memory[0]), vocab, static_cast<float*>(memory[1]), blocks, rows, vocab};
    p.launch = [args](int, cudaStream_t stream) { return cuda::BlockMaxima(args, stream); };
    return absl::OkStatus();
  });
}

// A slice of all layers and heads of `blocks` blocks of Llama-3.1-8B.
KernelCase KvCopy(const char* name, cudaError_t (*copy)(const cuda::KvCopyArgs&, cudaStream_t), int layers,
                  int blocks) {
  const size_t plane = size_t{8} * 16 * 128 * 2, block = 2 * plane, run = size_t(layers) * size_t(blocks) * block;
  return Case(name, absl::StrCat(layers, " layers x ", blocks, " blocks"), 2.0 * double(run), 0, [=](Problem& p) {
    std::vector<int32_t> ids(static_cast<size_t>(blocks));
    for (int i = 0; i < blocks; ++i) ids[size_t(i)] = blocks - 1 - i;
    absl::StatusOr<void*> made[] = {p.data.Bf16(run / 2), p.data.Bf16(run / 2), p.data.Copy(ids), p.data.Zeros(8)};
    void* memory[4];
    if (absl::Status status = Take(made, memory); !status.ok()) return status;
    cuda::KvCopyArgs args;
    args.pool = static_cast<unsigned char*>(memory[0]);
    args.run = static_cast<unsigned char*>(memory[1]);
    args.blocks = static_cast<const int32_t*>(memory[2]);
    args.checksum = static_cast<uint64_t*>(memory[3]);
    args.layer_bytes = size_t(blocks) * block;
    args.block_bytes = block;
    args.plane_bytes = args.run_bytes = plane;
    args.num_blocks = blocks;
    args.layers = layers;
    p.launch = [args, copy](int, cudaStream_t stream) { return copy(args, stream); };
    return absl::OkStatus();
  });
}

}  // namespace

std::vector<KernelCase> RowCases(bool tiny) {
  if (tiny) {
    return {Copy(1 << 20),
            Norm(3, 128),
            Rope(5, 4, 2),
            Embed(5, 128, 100),
            Maxima(2, 320),
            KvCopy("KV gather", cuda::GatherKv, 2, 3),
            KvCopy("KV scatter", cuda::ScatterKv, 2, 3)};
  }
  return {Copy(size_t{1} << 30),
          Norm(64, 4096),
          Norm(2048, 4096),
          Rope(64, 32, 8),
          Rope(2048, 32, 8),
          Embed(2048, 4096, 128256),
          Maxima(64, 128256),
          KvCopy("KV gather", cuda::GatherKv, 32, 64),
          KvCopy("KV scatter", cuda::ScatterKv, 32, 64)};
}

}  // namespace sluice::bench
