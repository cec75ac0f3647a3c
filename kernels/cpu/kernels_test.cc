// Each kernel of each table against plain loops, with bounds that follow from its arithmetic; and the tables among
// themselves, to the bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "kernels/conformance/reference.h"
#include "kernels/conformance/tiny_model.h"
#include "kernels/cpu/cpu_storage.h"
#include "kernels/cpu/isa.h"
#include "kernels/dequant.h"

namespace sluice::kernels::cpu {
namespace {

using conformance::Matrix;
using conformance::RandomMatrix;

constexpr uint32_t kSeed = 77;
constexpr double kUlp = std::numeric_limits<float>::epsilon() / 2;  // largest relative error of one rounding

class KernelsTest : public testing::TestWithParam<CpuIsa> {
 protected:
  void SetUp() override {
    if (!ResolveCpuIsa(GetParam()).ok()) GTEST_SKIP() << "this CPU lacks " << Name(GetParam());
  }
  const KernelTable& kernels() const { return KernelsFor(GetParam()); }
};

std::vector<float> Normals(size_t n, std::mt19937& rng, float size = 1.0f) {
  std::normal_distribution<float> normal(0.0f, size);
  std::vector<float> v(n);
  for (float& x : v) x = normal(rng);
  return v;
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST_P(KernelsTest, ExpIsCloseAndExactWhereItMustBe) {
  std::vector<float> x;
  for (int i = 0; i <= 400000; ++i) x.push_back(-100.0f + float(i) * 0.0005f * 0.94f);  // to 88
  std::vector<float> y(x.size()), scalar(x.size());
  kernels().exp(x.data(), int64_t(x.size()), y.data());
  kScalarKernels.exp(x.data(), int64_t(x.size()), scalar.data());
  EXPECT_TRUE(SameBits(y, scalar));
  double worst = 0;
  float at = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    if (x[i] < -87.33654f) {
      ASSERT_EQ(y[i], 0.0f) << x[i];
      continue;
    }
    const double expected = std::exp(double(x[i]));
    const double ulps = std::abs(double(y[i]) - expected) / (expected * kUlp * 2);
    if (ulps > worst) worst = ulps, at = x[i];
  }
  EXPECT_LE(worst, 2.0) << "at " << at;
  const float special[] = {0.0f, -0.0f, -INFINITY, -1e30f, 1000.0f};
  float out[5];
  kernels().exp(special, 5, out);
  EXPECT_EQ(out[0], 1.0f);
  EXPECT_EQ(out[1], 1.0f);
  EXPECT_EQ(out[2], 0.0f);
  EXPECT_EQ(out[3], 0.0f);
  EXPECT_TRUE(std::isfinite(out[4]));
}

TEST_P(KernelsTest, DequantizeHasTheBitsOfTheDefinition) {
  std::mt19937 rng(kSeed);
  for (int t = 0; t < kNumDTypes; ++t) {
    const DType type = DType(t);
    for (int cols : {256, 512, 37}) {
      if (cols % Info(type).block_elements != 0) continue;
      const Matrix m = RandomMatrix(type, 20, cols, rng);
      for (int64_t row = 0; row < m.rows; ++row) {
        std::vector<float> expected = m.Row(row);
        expected.resize(size_t(PadRow(cols)));
        std::vector<float> got(expected.size(), 9.0f);
        kernels().dequantize(type, m.bytes.data() + size_t(row) * RowBytes(type, cols), cols, got.data());
        ASSERT_TRUE(SameBits(got, expected)) << Info(type).name << ", " << cols << " columns, row " << row;
      }
    }
  }
}

// x is [rows][PadRow(cols)].
std::vector<float> RunMatmul(const KernelTable& kernels, const Matrix& w, std::vector<float>& x, int rows,
                             const float* bias, bool accumulate) {
  std::vector<float> y(size_t(rows) * size_t(w.rows), accumulate ? 0.5f : 9.0f);
  HostMemory tile = *HostMemory::Map(size_t(PadRow(w.cols)) * kTileColumns * sizeof(float));
  kernels.matmul({.type = w.type,
                  .w = w.bytes.data(),
                  .row_bytes = int64_t(RowBytes(w.type, w.cols)),
                  .cols = w.cols,
                  .x = x.data(),
                  .ldx = PadRow(w.cols),
                  .rows = rows,
                  .y = y.data(),
                  .ldy = w.rows,
                  .bias = bias,
                  .accumulate = accumulate,
                  .tile = tile.floats()},
                 0, w.rows);
  return y;
}

std::vector<float> PaddedRows(int rows, int64_t cols, std::mt19937& rng) {
  std::vector<float> x(size_t(rows) * size_t(PadRow(cols)));
  for (int m = 0; m < rows; ++m) {
    const std::vector<float> row = Normals(size_t(cols), rng);
    std::copy(row.begin(), row.end(), x.begin() + m * PadRow(cols));
  }
  return x;
}

TEST_P(KernelsTest, MatmulIsNearTheSumAndTheSameForAnyRows) {
  std::mt19937 rng(kSeed);
  for (int t = 0; t < kNumDTypes; ++t) {
    for (int64_t cols : {256, 768, 50, 1}) {
      if (cols % Info(DType(t)).block_elements != 0) continue;
      const int rows = 11, n = 21;
      SCOPED_TRACE(std::string(Info(DType(t)).name) + " x " + std::to_string(cols));
      const Matrix w = RandomMatrix(DType(t), n, cols, rng);
      const std::vector<float> bias = Normals(size_t(n), rng);
      for (const bool accumulate : {false, true}) {
        std::vector<float> x = PaddedRows(rows, cols, rng);
        const auto y = RunMatmul(kernels(), w, x, rows, bias.data(), accumulate);
        EXPECT_TRUE(SameBits(y, RunMatmul(kScalarKernels, w, x, rows, bias.data(), accumulate)));
        for (int m = 0; m < rows; ++m) {
          std::vector<float> row(x.begin() + m * PadRow(cols), x.begin() + (m + 1) * PadRow(cols));
          const auto alone = RunMatmul(kernels(), w, row, 1, bias.data(), accumulate);
          ASSERT_EQ(std::memcmp(alone.data(), &y[size_t(m * n)], size_t(n) * 4), 0) << "row " << m << " alone";
          for (int i = 0; i < n; ++i) {
            const std::vector<float> weights = w.Row(i);
            double sum = 0, size = 0;
            for (int64_t k = 0; k < cols; ++k) {
              sum += double(weights[size_t(k)]) * row[size_t(k)];
              size += std::abs(double(weights[size_t(k)]) * row[size_t(k)]);
            }
            sum += bias[size_t(i)] + (accumulate ? 0.5 : 0.0);
            size += std::abs(bias[size_t(i)]) + 0.5;
            // A lane's chain, four levels of the tree, bias and addition to y.
            const double bound = (double(PadRow(cols)) / 16 + 4 + 2) * kUlp * 1.01 * size;
            ASSERT_NEAR(y[size_t(m * n + i)], sum, bound) << "row " << m << ", column " << i;
          }
        }
      }
    }
  }
}

TEST_P(KernelsTest, RmsNormIsNearAndTheSame) {
  std::mt19937 rng(kSeed);
  for (int n : {1, 16, 37, 576}) {
    const std::vector<float> x = PaddedRows(1, n, rng), weight = Normals(size_t(n), rng);
    std::vector<float> y(size_t(n), 9.0f), scalar(size_t(n), 9.0f);
    kernels().rms_norm(x.data(), weight.data(), 1e-5f, n, y.data());
    kScalarKernels.rms_norm(x.data(), weight.data(), 1e-5f, n, scalar.data());
    EXPECT_TRUE(SameBits(y, scalar));
    double squares = 0;
    for (int i = 0; i < n; ++i) squares += double(x[size_t(i)]) * x[size_t(i)];
    for (int i = 0; i < n; ++i) {
      const double expected = x[size_t(i)] / std::sqrt(squares / n + 1e-5f) * weight[size_t(i)];
      // Half of the sum's error goes through the root; mean, eps, root, division and two products round once each.
      EXPECT_NEAR(y[size_t(i)], expected, std::abs(expected) * ((PadRow(n) / 16 + 4) / 2.0 + 6) * kUlp) << i;
    }
  }
}

TEST_P(KernelsTest, ActivationsAreNearAndTheSame) {
  std::mt19937 rng(kSeed);
  const std::vector<float> gate = Normals(1003, rng, 4.0f), up = Normals(1003, rng);
  for (const bool silu : {true, false}) {
    std::vector<float> y = gate, scalar = gate;
    (silu ? kernels().silu_mul : kernels().gelu_tanh_mul)(y.data(), up.data(), int64_t(y.size()));
    (silu ? kScalarKernels.silu_mul : kScalarKernels.gelu_tanh_mul)(scalar.data(), up.data(), int64_t(y.size()));
    EXPECT_TRUE(SameBits(y, scalar));
    for (size_t i = 0; i < y.size(); ++i) {
      const double x = gate[i];
      const double act =
          silu ? x / (1 + std::exp(-x)) : 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
      // GELU loses to cancellation in 1 - 1 / (e + 1) where it is near zero, so its bound is relative to x.
      EXPECT_NEAR(y[i], act * up[i], std::abs((silu ? act : x) * up[i]) * 16 * kUlp + 1e-30) << x;
    }
  }
}

TEST_P(KernelsTest, RopeRotatesPairs) {
  std::mt19937 rng(kSeed);
  const int heads = 3, dim = 20, rotary = 14;
  for (const bool half : {false, true}) {
    const std::vector<float> before = Normals(heads * dim, rng);
    std::vector<float> cos_sin, after = before, scalar = before;
    for (int i = 0; i < rotary / 2; ++i) cos_sin.push_back(std::cos(0.3f * float(i)));
    for (int i = 0; i < rotary / 2; ++i) cos_sin.push_back(std::sin(0.3f * float(i)));
    kernels().rope(after.data(), heads, dim, rotary, half, cos_sin.data());
    kScalarKernels.rope(scalar.data(), heads, dim, rotary, half, cos_sin.data());
    EXPECT_TRUE(SameBits(after, scalar));
    for (int h = 0; h < heads; ++h) {
      for (int i = 0; i < rotary / 2; ++i) {
        const int a = h * dim + (half ? i : 2 * i), b = h * dim + (half ? i + rotary / 2 : 2 * i + 1);
        const double c = cos_sin[size_t(i)], s = cos_sin[size_t(i + rotary / 2)];
        EXPECT_NEAR(after[size_t(a)], before[size_t(a)] * c - before[size_t(b)] * s, 1e-6);
        EXPECT_NEAR(after[size_t(b)], before[size_t(a)] * s + before[size_t(b)] * c, 1e-6);
      }
      for (int i = rotary; i < dim; ++i) EXPECT_EQ(after[size_t(h * dim + i)], before[size_t(h * dim + i)]);
    }
  }
}

TEST_P(KernelsTest, AttentionIsNearTheDefinition) {
  std::mt19937 rng(kSeed);
  const int dim = 24, heads = 2, block = 16, tokens = 5, last = 140;
  const int blocks = BlocksFor(last, block), plane = block * dim;
  const std::vector<float> kv = Normals(size_t(blocks) * 2 * plane, rng);
  std::vector<int32_t> table;
  for (int i = 0; i < blocks; ++i) table.push_back((i * 5 + 2) % blocks);
  const std::vector<float> q = Normals(tokens * heads * dim, rng, 2.0f);
  HostMemory scratch = *HostMemory::Map(size_t(AttentionScratchFloats(dim)) * sizeof(float));
  for (int end : {5, 64, 66, last}) {
    std::vector<float> out(q.size());
    AttentionArgs args{.q = q.data(),
                       .ldq = heads * dim,
                       .out = out.data(),
                       .ldo = heads * dim,
                       .tokens = tokens,
                       .heads = heads,
                       .first_position = end - tokens,
                       .head_dim = dim,
                       .scale = 0.2f,
                       .kv = kv.data(),
                       .block_stride = 2 * plane,
                       .v_offset = plane,
                       .block_size = block,
                       .blocks = table.data(),
                       .scratch = scratch.floats()};
    kernels().attention(args);
    std::vector<float> scalar(q.size());
    args.out = scalar.data();
    kScalarKernels.attention(args);
    EXPECT_TRUE(SameBits(out, scalar));
    for (int t = 0; t < tokens; ++t) {
      std::vector<std::vector<double>> keys, values;
      for (int j = 0; j <= end - tokens + t; ++j) {
        const float* k = &kv[size_t(table[size_t(j / block)] * 2 * plane + j % block * dim)];
        keys.emplace_back(k, k + dim);
        values.emplace_back(k + plane, k + plane + dim);
      }
      for (int h = 0; h < heads; ++h) {
        const float* row = &q[size_t((t * heads + h) * dim)];
        const auto expected = conformance::ReferenceAttention({row, row + dim}, keys, values, 0.2f);
        for (int d = 0; d < dim; ++d) {
          // Scores up to about 10 carry 10 roundings of that size into the exponent; values are about 4 at most.
          EXPECT_NEAR(out[size_t((t * heads + h) * dim + d)], expected[size_t(d)], 4 * 10 * 10 * kUlp * 2)
              << "end " << end << ", token " << t << ", head " << h << ", element " << d;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, KernelsTest, testing::Values(CpuIsa::kScalar, CpuIsa::kAvx2, CpuIsa::kAvx512),
                         [](const auto& test) { return std::string(Name(test.param)); });

}  // namespace
}  // namespace sluice::kernels::cpu
