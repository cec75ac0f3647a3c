// Products for tests: random matrices, what the definition makes of them in doubles, and running a kernel over some
// rows.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/gemm/gemm.h"
#include "kernels/cuda/testing/device_array.h"

namespace sluice::kernels::cuda {

inline constexpr int kPadding = 5;  // behind the columns of an output; stays as it is

struct Problem {
  int m, k;
  std::vector<int> n;  // of each part
  GemmOutput output;
  bool bias = false;
  std::vector<__nv_bfloat16> a;
  std::vector<std::vector<__nv_bfloat16>> w;
  std::vector<std::vector<float>> biases;

  Problem(int rows, int depth, std::vector<int> parts, GemmOutput out, bool with_bias = false)
      : m(rows), k(depth), n(std::move(parts)), output(out), bias(with_bias) {
    Numbers numbers(uint64_t(m * 31 + k));
    a = numbers.Bf16(size_t(m * k));
    for (const int rows_of_w : n) {
      w.push_back(numbers.Bf16(size_t(rows_of_w * k)));
      biases.push_back(numbers.Floats(size_t(rows_of_w)));
    }
  }
  bool gated() const { return output == GemmOutput::kGatedSilu || output == GemmOutput::kGatedGelu; }
  bool f32() const { return output == GemmOutput::kF32 || output == GemmOutput::kAdd; }

  // Of part `part`, row i, column j, before what follows the product.
  double Product(size_t part, int i, int j) const {
    double sum = bias ? biases[part][size_t(j)] : 0;
    for (int l = 0; l < k; ++l) sum += ToDouble(a[size_t(i * k + l)]) * ToDouble(w[part][size_t(j * k + l)]);
    return sum;
  }
  double Want(size_t part, int i, int j) const {
    const double x = Product(part, i, j);
    if (output == GemmOutput::kAdd) return 77 + x;
    if (output == GemmOutput::kGatedSilu) return x / (1 + std::exp(-x)) * Product(1, i, j);
    if (output == GemmOutput::kGatedGelu) {
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))) * Product(1, i, j);
    }
    return x;
  }
};

// Of rows [first, first + count), [part][count][n + kPadding] as f32.
inline std::vector<std::vector<float>> RunProblem(const Problem& p, int first, int count, size_t workspace_bytes,
                                                  const std::function<void(const GemmArgs&)>& multiply) {
  DeviceArray<__nv_bfloat16> a({p.a.begin() + first * p.k, p.a.begin() + (first + count) * p.k});
  DeviceArray<float> space(std::max<size_t>(1, workspace_bytes / sizeof(float)));
  GemmArgs args{.a = a.data(),
                .a_stride = p.k,
                .m = count,
                .k = p.k,
                .num_parts = int(p.n.size()),
                .output = p.output,
                .workspace = space.data(),
                .workspace_bytes = workspace_bytes};
  std::vector<std::unique_ptr<DeviceArray<__nv_bfloat16>>> w, narrow;
  std::vector<std::unique_ptr<DeviceArray<float>>> wide, biases;
  for (size_t i = 0; i < p.n.size(); ++i) {
    const size_t size = size_t(count * (p.n[i] + kPadding));
    w.push_back(std::make_unique<DeviceArray<__nv_bfloat16>>(p.w[i]));
    biases.push_back(std::make_unique<DeviceArray<float>>(p.biases[i]));
    wide.push_back(std::make_unique<DeviceArray<float>>(std::vector<float>(size, 77)));
    narrow.push_back(
        std::make_unique<DeviceArray<__nv_bfloat16>>(std::vector<__nv_bfloat16>(size, __float2bfloat16_rn(77))));
    args.parts[i] = {.w = w[i]->data(),
                     .bias = p.bias ? biases[i]->data() : nullptr,
                     .out = p.f32() ? static_cast<void*>(wide[i]->data()) : narrow[i]->data(),
                     .stride = p.n[i] + kPadding,
                     .n = p.n[i]};
  }
  multiply(args);
  std::vector<std::vector<float>> out;
  for (size_t i = 0; i < (p.gated() ? 1 : p.n.size()); ++i) {
    out.push_back(wide[i]->Read());
    if (p.f32()) continue;
    const std::vector<__nv_bfloat16> read = narrow[i]->Read();
    for (size_t j = 0; j < read.size(); ++j) out[i][j] = __bfloat162float(read[j]);
  }
  return out;
}

// `more`: of what rounding beside the sums and the output may add, as a share.
inline void ExpectAll(const Problem& p, const std::vector<std::vector<float>>& got, double more = 0) {
  for (size_t part = 0; part < got.size(); ++part) {
    const int stride = p.n[part] + kPadding;
    double worst = 0;
    for (int i = 0; i < p.m; ++i) {
      for (int j = 0; j < stride; ++j) {
        const float value = got[part][size_t(i * stride + j)];
        if (j >= p.n[part]) {
          ASSERT_EQ(value, 77) << "behind row " << i;
          continue;
        }
        const double want = p.Want(part, i, j), error = std::abs(value - want) / (std::abs(want) + std::sqrt(p.k));
        worst = error <= worst ? worst : std::isnan(error) ? HUGE_VAL : error;
      }
    }
    // Products are exact in f32, sums of k of them err by k roundings at most, on numbers of size sqrt(k); then bf16.
    EXPECT_LE(worst, p.k * 1.2e-7 + (p.f32() ? 0 : 1.0 / 256) + more) << "part " << part;
  }
}

inline void ExpectRow(const Problem& p, const std::vector<std::vector<float>>& all, int row,
                      const std::vector<std::vector<float>>& some, int at, const std::string& what) {
  for (size_t part = 0; part < all.size(); ++part) {
    const size_t stride = size_t(p.n[part] + kPadding);
    EXPECT_EQ(std::memcmp(&all[part][size_t(row) * stride], &some[part][size_t(at) * stride], stride * sizeof(float)),
              0)
        << what << ", part " << part << ", row " << row;
  }
}

}  // namespace sluice::kernels::cuda
