#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bench/cuda/device_data.h"
#include "bench/cuda/kernel_cases.h"
#include "kernels/cuda/gemm/gemm.h"
#include "kernels/cuda/gemm/int8_layout.h"

namespace sluice::bench {
namespace {

namespace cuda = kernels::cuda;

struct Shape {
  const char* name;
  int n, k;  // of each part
  int parts = 1;
  cuda::GemmOutput output = cuda::GemmOutput::kBf16;
  bool int8 = false;  // weights

  size_t weight_bytes() const { return int8 ? cuda::Int8Bytes(n, k) : size_t(n) * size_t(k) * 2; }  // of a part
  size_t element() const {
    return output == cuda::GemmOutput::kF32 || output == cuda::GemmOutput::kAdd ? sizeof(float) : 2;
  }
  bool gated() const { return output == cuda::GemmOutput::kGatedSilu; }
};

struct Problem {
  DeviceData data;
  cuda::GemmArgs args;
};

absl::StatusOr<std::shared_ptr<Problem>> MakeProblem(const Shape& s, int rows) {
  auto problem = std::make_shared<Problem>();
  auto& [data, args] = *problem;
  args.m = rows;
  args.k = s.k;
  args.a_stride = s.k;
  args.num_parts = s.parts;
  args.output = s.output;
  args.workspace_bytes =
      std::min(size_t{8} * 132 * 128 * 128 * 4, size_t{8} * size_t(rows) * size_t(s.n * s.parts) * 4);
  auto a = data.Bf16(size_t(rows) * size_t(s.k)), space = data.Zeros(args.workspace_bytes);
  if (!a.ok()) return a.status();
  if (!space.ok()) return space.status();
  args.a = static_cast<const __nv_bfloat16*>(*a);
  args.workspace = *space;
  for (int i = 0; i < s.parts; ++i) {
    // Codes and scales of any bits cost the same; zeros are all alike.
    auto w = s.int8 ? data.Zeros(s.weight_bytes()) : data.Bf16(size_t(s.n) * size_t(s.k)),
         out = data.Zeros(size_t(rows) * size_t(s.n) * s.element());
    if (!w.ok()) return w.status();
    if (!out.ok()) return out.status();
    args.parts[i] = {.w = s.int8 ? nullptr : static_cast<const __nv_bfloat16*>(*w),
                     .int8 = s.int8 ? *w : nullptr,
                     .out = *out,
                     .stride = s.n,
                     .n = s.n};
  }
  return problem;
}

KernelCase Case(const Shape& s, int rows) {
  const double weights = double(s.weight_bytes()) * s.parts;
  const double outputs = double(rows) * s.n * (s.gated() ? 1 : s.parts) * double(s.element()) *
                         (s.output == cuda::GemmOutput::kAdd ? 2 : 1);
  const double bytes = weights + 2.0 * rows * s.k + outputs;
  return {absl::StrCat("product, ", s.name, s.int8 ? ", int8 weights" : ""), absl::StrCat(rows, " rows"), bytes,
          2.0 * rows * s.n * s.parts * s.k, [s, rows, bytes]() -> absl::StatusOr<Launch> {
            std::vector<std::shared_ptr<Problem>> copies;
            for (int i = 0; i < Copies(bytes); ++i) {
              auto problem = MakeProblem(s, rows);
              if (!problem.ok()) return problem.status();
              copies.push_back(*std::move(problem));
            }
            return [copies](int i, cudaStream_t stream) {
              return cuda::Gemm(copies[size_t(i) % copies.size()]->args, stream);
            };
          }};
}

}  // namespace

std::vector<KernelCase> ProductCases(bool tiny) {
  if (tiny) {
    return {Case({"q, k, v", 64, 128, 3}, 5), Case({"gate and up", 64, 128, 2, cuda::GemmOutput::kGatedSilu}, 5),
            Case({"large", 128, 128, 1}, 128), Case({"down", 64, 128, 1, cuda::GemmOutput::kAdd, true}, 5),
            Case({"large", 128, 128, 1, cuda::GemmOutput::kBf16, true}, 128)};
  }
  // Of Llama-3.1-8B; q, k and v as one matrix of their width.
  const Shape qkv{"q, k, v", 6144, 4096}, output{"output", 4096, 4096, 1, cuda::GemmOutput::kAdd},
      gate_up{"gate and up", 14336, 4096, 2, cuda::GemmOutput::kGatedSilu},
      down{"down", 4096, 14336, 1, cuda::GemmOutput::kAdd}, head{"head", 128256, 4096, 1, cuda::GemmOutput::kF32};
  std::vector<KernelCase> cases;
  for (const Shape& shape : {qkv, output, gate_up, down}) {
    for (const int rows : {1, 8, 64, 256, 2048}) cases.push_back(Case(shape, rows));
  }
  for (const int rows : {1, 64, 256}) cases.push_back(Case(head, rows));
  cases.push_back(Case({"large", 8192, 8192}, 8192));
  for (Shape shape : {qkv, output, gate_up, down}) {
    shape.int8 = true;
    for (const int rows : {1, 8, 64, 256, 2048}) cases.push_back(Case(shape, rows));
  }
  cases.push_back(Case({"large", 8192, 8192, 1, cuda::GemmOutput::kBf16, true}, 8192));
  return cases;
}

}  // namespace sluice::bench
