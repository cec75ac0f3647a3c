#include <algorithm>
#include <memory>
#include <numeric>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bench/cuda/device_data.h"
#include "bench/cuda/kernel_cases.h"
#include "kernels/backend.h"
#include "kernels/cuda/backend/errors.h"
#include "kernels/cuda/rows/block_maxima.h"
#include "kernels/cuda/rows/embed.h"
#include "kernels/cuda/rows/rms_norm.h"
#include "kernels/cuda/rows/rope_kv.h"
#include "kernels/cuda/sampling/sample.h"
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

// Rows shaped like a model's: a bell, and twenty good tokens.
std::vector<float> Logits(int rows, int vocab) {
  std::mt19937 random(1);
  std::normal_distribution<float> bell(0.0f, 2.5f);
  std::vector<float> x(size_t(rows) * size_t(vocab));
  for (float& value : x) value = bell(random);
  for (int row = 0; row < rows; ++row) {
    for (int i = 0; i < 20; ++i) x[size_t(row) * size_t(vocab) + random() % size_t(vocab)] = 16.0f - 0.4f * float(i);
  }
  return x;
}

// All rows alike but for the seed. What it has to move is the maxima alone where few logits are looked at.
KernelCase Sampling(const char* name, int rows, int vocab, kernels::SampleRow of, bool whole) {
  const int blocks = kernels::NumLogitBlocks(vocab);
  const double bytes = double(rows) * (whole ? vocab : blocks) * 4;
  return Case(name, absl::StrCat(rows, " x ", vocab), bytes, 0, [=](Problem& p) {
    std::vector<kernels::SampleRow> draws(size_t(rows), of);
    for (int i = 0; i < rows; ++i) {
      draws[size_t(i)].seed = uint64_t(i);
      draws[size_t(i)].first_top = i * std::max(of.logprobs, 0);
    }
    absl::StatusOr<void*> made[] = {p.data.Copy(Logits(rows, vocab)), p.data.Zeros(size_t(rows) * size_t(blocks) * 4),
                                    p.data.Copy(draws), p.data.Zeros(size_t(rows) * 32 * sizeof(kernels::SampledToken)),
                                    p.data.Zeros(cuda::SampleWorkspace(rows, vocab, 0))};
    void* memory[5];
    if (absl::Status status = Take(made, memory); !status.ok()) return status;
    cuda::SampleArgs args;
    args.logits = static_cast<float*>(memory[0]);
    args.maxima = static_cast<float*>(memory[1]);
    args.rows_of = static_cast<const kernels::SampleRow*>(memory[2]);
    args.tokens = static_cast<kernels::SampledToken*>(memory[3]);
    args.tops = args.tokens + rows;
    args.workspace = memory[4];
    args.rows = rows;
    args.vocab = vocab;
    cudaError_t error = cuda::BlockMaxima({args.logits, vocab, args.maxima, blocks, rows, vocab}, cudaStreamPerThread);
    if (error == cudaSuccess) error = cudaStreamSynchronize(cudaStreamPerThread);
    p.launch = [args](int, cudaStream_t stream) { return cuda::Sample(args, stream); };
    return kernels::cuda::ToStatus(error, "maxima");
  });
}

void AddSampling(int rows, int vocab, std::vector<KernelCase>& cases) {
  using kernels::SampleKind;
  const kernels::SampleRow greedy{.kind = SampleKind::kDraw};
  const kernels::SampleRow logprobs{.kind = SampleKind::kDraw, .logprobs = 5};
  const kernels::SampleRow any{.kind = SampleKind::kDraw, .temperature = 1.0f};
  const kernels::SampleRow top_k{.kind = SampleKind::kDraw, .temperature = 0.7f, .top_p = 0.9f, .top_k = 40};
  const kernels::SampleRow top_p{.kind = SampleKind::kDraw, .temperature = 1.0f, .top_p = 0.95f};
  cases.push_back(Sampling("sampling, greedy", rows, vocab, greedy, false));
  cases.push_back(Sampling("sampling, 5 logprobs", rows, vocab, logprobs, true));
  cases.push_back(Sampling("sampling, temperature", rows, vocab, any, true));
  cases.push_back(Sampling("sampling, top-k 40, top-p", rows, vocab, top_k, false));
  cases.push_back(Sampling("sampling, top-p 0.95", rows, vocab, top_p, true));
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
  std::vector<KernelCase> cases;
  if (tiny) {
    cases = {Copy(1 << 20),
             Norm(3, 128),
             Rope(5, 4, 2),
             Embed(5, 128, 100),
             Maxima(2, 320),
             KvCopy("KV gather", cuda::GatherKv, 2, 3),
             KvCopy("KV scatter", cuda::ScatterKv, 2, 3)};
    AddSampling(2, 320, cases);
    return cases;
  }
  cases = {Copy(size_t{1} << 30),
           Norm(64, 4096),
           Norm(2048, 4096),
           Rope(64, 32, 8),
           Rope(2048, 32, 8),
           Embed(2048, 4096, 128256),
           Maxima(64, 128256),
           KvCopy("KV gather", cuda::GatherKv, 32, 64),
           KvCopy("KV scatter", cuda::ScatterKv, 32, 64)};
  for (const int rows : {1, 64, 256}) AddSampling(rows, 128256, cases);
  return cases;
}

}  // namespace sluice::bench
