#include <cmath>
#include <memory>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bench/cuda/device_data.h"
#include "bench/cuda/kernel_cases.h"
#include "kernels/cuda/attention/attention.h"

namespace sluice::bench {
namespace {

using kernels::KvDType;
namespace cuda = kernels::cuda;

struct Shape {
  int seqs, rows, context;  // of each sequence; the rows are its last tokens
  KvDType dtype = KvDType::kBF16;
  int heads = 32, kv_heads = 8, head_dim = 128;
};

// What one launch needs, and whose it is.
struct Problem {
  DeviceData data;
  cuda::AttentionArgs args;
};

absl::StatusOr<std::shared_ptr<Problem>> MakeProblem(const Shape& s) {
  auto problem = std::make_shared<Problem>();
  auto& [data, args] = *problem;
  args.layout = {1, s.kv_heads, s.head_dim, 16, s.dtype};
  args.shape = {s.heads / s.kv_heads, s.head_dim, 0};
  args.kv_heads = s.kv_heads;
  args.scale = 1.0f / std::sqrt(float(s.head_dim));
  args.q_stride = args.out_stride = int64_t(s.heads) * s.head_dim;
  args.max_blocks = kernels::BlocksFor(s.context, 16);
  const size_t rows = size_t(s.seqs) * size_t(s.rows), blocks = size_t(s.seqs) * size_t(args.max_blocks);

  std::vector<int32_t> table(blocks), row_begin(size_t(s.seqs) + 1), contexts(size_t(s.seqs), s.context);
  for (size_t i = 0; i < blocks; ++i) table[i] = int32_t((i * 7919) % blocks);  // 7919 is prime to what is used here
  for (int i = 0; i <= s.seqs; ++i) row_begin[size_t(i)] = i * s.rows;
  args.capacity = cuda::CapacityFor(int(rows), s.seqs, s.context, args.shape);
  std::vector<int32_t> plan(args.capacity.words());
  cuda::BuildAttentionPlan(row_begin, contexts, args.shape, args.capacity, plan);

  const size_t width = size_t(args.q_stride), kv_bytes = blocks * args.layout.block_bytes();
  auto kv = s.dtype == KvDType::kBF16 ? data.Bf16(kv_bytes / 2) : data.Zeros(kv_bytes);
  auto q = data.Bf16(rows * width), out = data.Bf16(rows * width);
  auto on_device = data.Copy(table), plan_on_device = data.Copy(plan);
  auto space = data.Zeros(cuda::AttentionWorkspace(args.capacity.partials, s.heads, s.head_dim));
  for (const auto* memory : {&kv, &q, &out, &on_device, &plan_on_device, &space}) {
    if (!memory->ok()) return memory->status();
  }
  args.kv = *kv;
  args.q = static_cast<const __nv_bfloat16*>(*q);
  args.out = static_cast<__nv_bfloat16*>(*out);
  args.block_table = static_cast<const int32_t*>(*on_device);
  args.plan = static_cast<const int32_t*>(*plan_on_device);
  args.workspace = *space;
  // As the launches of a step without a graph: no more blocks than items.
  const auto& header = *reinterpret_cast<const cuda::AttentionPlanHeader*>(plan.data());
  args.capacity.spans = header.spans;
  args.capacity.merges = header.merges;
  args.capacity.prefills = header.prefills;
  return problem;
}

KernelCase Case(std::string kernel, std::string name, const Shape& s) {
  const kernels::KvLayout layout{1, s.kv_heads, s.head_dim, 16, s.dtype};
  const double kv = double(s.seqs) * s.context * double(layout.block_bytes()) / 16;
  const double width = double(s.heads) * s.head_dim, rows = double(s.seqs) * s.rows;
  const double keys = double(s.rows) * s.context - double(s.rows) * (s.rows - 1) / 2;  // seen, of a sequence
  const double bytes = kv + 2 * rows * width * 2;
  return {std::move(kernel), std::move(name), bytes, 4 * s.seqs * keys * width, [s, bytes]() -> absl::StatusOr<Launch> {
            std::vector<std::shared_ptr<Problem>> copies;
            for (int i = 0; i < Copies(bytes); ++i) {
              auto problem = MakeProblem(s);
              if (!problem.ok()) return problem.status();
              copies.push_back(*std::move(problem));
            }
            return [copies](int i, cudaStream_t stream) {
              return cuda::Attention(copies[size_t(i) % copies.size()]->args, stream);
            };
          }};
}

}  // namespace

std::vector<KernelCase> AttentionCases(bool tiny) {
  if (tiny) {
    return {Case("decode attention", "3 x 300", {3, 1, 300}),
            Case("decode attention, int8", "3 x 300", {3, 1, 300, KvDType::kInt8}),
            Case("prefill attention", "100", {1, 100, 100})};
  }
  std::vector<KernelCase> cases;
  for (const auto& [seqs, context] : {std::pair(64, 1024), {64, 4096}, {64, 8192}, {1, 1024}, {1, 4096}, {1, 32768}}) {
    cases.push_back(Case("decode attention", absl::StrCat(seqs, " x ", context), {seqs, 1, context}));
  }
  cases.push_back(Case("decode attention, int8", "64 x 4096", {64, 1, 4096, KvDType::kInt8}));
  for (const int prompt : {1024, 4096, 16384}) {
    cases.push_back(Case("prefill attention", absl::StrCat(prompt), {1, prompt, prompt}));
  }
  cases.push_back(Case("prefill attention", "512 after 7680", {1, 512, 8192}));
  return cases;
}

}  // namespace sluice::bench
