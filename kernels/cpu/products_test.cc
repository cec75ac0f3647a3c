// The ways to multiply (products.h) that native and bf16 mode have, on each instruction set: against plain loops, and
// all of them against the scalar ones to the bit. int8 mode has tests of its own (int8/).
#include "kernels/cpu/products.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/conformance/tiny_model.h"
#include "kernels/cpu/bf16/bf16_products.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/native/native_products.h"
#include "kernels/dequant.h"

namespace sluice::kernels::cpu {
namespace {

using conformance::Matrix;
using conformance::RandomMatrix;

constexpr uint32_t kSeed = 815;

struct Way {
  bool native;
  CpuIsa isa;
};

std::unique_ptr<const Products> Make(bool native, CpuIsa isa) {
  return native ? NewNativeProducts(KernelsFor(isa), NativeKernelsFor(isa))
                : NewBf16Products(KernelsFor(isa), Bf16KernelsFor(isa));
}

class ProductsTest : public testing::TestWithParam<Way> {
 protected:
  void SetUp() override {
    if (!ResolveCpuIsa(GetParam().isa).ok()) GTEST_SKIP() << "this CPU lacks " << Name(GetParam().isa);
    products_ = Make(GetParam().native, GetParam().isa);
    scalar_ = Make(GetParam().native, CpuIsa::kScalar);
  }
  bool native() const { return GetParam().native; }

  std::unique_ptr<Weight> Pack(const Products& products, const Matrix& m, int n, int cols) {
    auto packed = products.Pack({m.type, m.bytes.data(), n, cols}, {}, pool_);
    EXPECT_TRUE(packed.ok()) << packed.status();
    return *std::move(packed);
  }

  ThreadPool pool_{2};
  std::unique_ptr<const Products> products_, scalar_;
  std::mt19937 rng_{kSeed};
};

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// x [rows][cols] in the form of `products`.
std::unique_ptr<ProductRows> Take(const Products& products, const Weight& w, const std::vector<float>& x, int rows) {
  auto taken = *products.NewRows(rows, w.cols());
  taken->Use(w);
  for (int m = 0; m < rows; ++m) {
    std::vector<float> work(size_t(taken->work_floats()), 0.0f);
    std::copy_n(x.data() + m * w.cols(), w.cols(), work.begin());
    taken->Set(m, work.data());
  }
  return taken;
}

std::vector<float> Multiply(const Products& products, const Weight& w, const std::vector<float>& x, int rows,
                            const float* bias = nullptr, bool accumulate = false) {
  std::vector<float> y(size_t(rows) * size_t(w.rows()), 0.5f);
  const auto taken = Take(products, w, x, rows);
  const int64_t panels = PanelsOf(w), middle = panels / 2;
  const ProductOutput out{y.data(), w.rows(), bias, accumulate};
  products.Multiply(w, *taken, rows, out, middle, panels);
  products.Multiply(w, *taken, rows, out, 0, middle);
  return y;
}

// Whole numbers, the largest of each 32 being 127: rounding to eight bits by the block's own scale changes nothing.
std::vector<float> WholeNumbers(size_t n, std::mt19937& rng) {
  std::uniform_int_distribution<int> draw(-127, 127);
  std::vector<float> x(n);
  for (size_t i = 0; i < n; ++i) x[i] = i % 32 == 5 ? 127.0f : float(draw(rng));
  return x;
}

// The dot product that an exact packing would give, and the sum of its terms' sizes.
std::pair<double, double> Exact(const float* x, const std::vector<float>& w) {
  double sum = 0, size = 0;
  for (size_t i = 0; i < w.size(); ++i) {
    sum += double(x[i]) * w[i];
    size += std::abs(double(x[i]) * w[i]);
  }
  return {sum, size};
}

// How far a packed weight may be from the file's, relative to its size.
double PackingError(bool native, DType type) {
  const bool kept = type == DType::kQ4_0 || type == DType::kQ4_1 || type == DType::kQ4_K || type == DType::kQ8_0;
  if (native) return kept ? 0 : 0.02;
  return type == DType::kBF16 ? 0 : 0.004;
}

TEST_P(ProductsTest, KeepWhatTheFileHasAndHaveTheScalarBits) {
  for (int t = 0; t < kNumDTypes; ++t) {
    const DType type = DType(t);
    for (const auto& [n, blocks] : std::vector<std::pair<int, int>>{{16, 8}, {40, 24}, {100, 8}, {33, 16}, {1, 8}}) {
      const int cols = blocks * 32;
      const Matrix m = RandomMatrix(type, n, cols, rng_);
      const auto w = Pack(*products_, m, n, cols), scalar_w = Pack(*scalar_, m, n, cols);
      for (const int rows : {1, 2, 3, 5, 8, 9, 17}) {
        const std::vector<float> x = WholeNumbers(size_t(rows) * size_t(cols), rng_);
        const std::vector<float> y = Multiply(*products_, *w, x, rows);
        ASSERT_TRUE(SameBits(y, Multiply(*scalar_, *scalar_w, x, rows)))
            << Info(type).name << " " << n << " x " << cols << ", " << rows << " rows, seed " << kSeed;
        for (int i = 0; i < rows; ++i) {
          for (int j = 0; j < n; ++j) {
            const auto [exact, size] = Exact(x.data() + i * cols, m.Row(j));
            ASSERT_NEAR(y[size_t(i * n + j)], exact, (PackingError(native(), type) + 1e-6) * size)
                << Info(type).name << " " << n << " x " << cols << ": row " << i << ", output " << j;
          }
        }
      }
    }
  }
}

TEST_P(ProductsTest, RoundActivationsAtMost) {
  std::normal_distribution<float> normal;
  const int n = 48, cols = 576, rows = 7;
  const Matrix m = RandomMatrix(DType::kQ8_0, n, cols, rng_);
  const auto w = Pack(*products_, m, n, cols);
  std::vector<float> x(size_t(rows * cols));
  for (float& v : x) v = normal(rng_);
  const std::vector<float> y = Multiply(*products_, *w, x, rows);
  double error = 0, size = 0;
  for (int i = 0; i < rows; ++i) {
    for (int j = 0; j < n; ++j) {
      const double exact = Exact(x.data() + i * cols, m.Row(j)).first;
      error += std::pow(exact - y[size_t(i * n + j)], 2);
      size += exact * exact;
    }
  }
  EXPECT_LT(std::sqrt(error / size), native() ? 0.01 : 0.003);
}

// Widths that are no whole blocks exist for plain floats.
TEST_P(ProductsTest, OddWidthsBiasAndSums) {
  const int n = 21;
  for (const int cols : {1, 2, 31, 33, 75}) {
    const Matrix m = RandomMatrix(DType::kF32, n, cols, rng_);
    const auto w = Pack(*products_, m, n, cols);
    const std::vector<float> x = WholeNumbers(size_t(4 * cols), rng_);
    std::vector<float> bias(n);
    for (int j = 0; j < n; ++j) bias[size_t(j)] = float(j) - 7;
    const std::vector<float> plain = Multiply(*products_, *w, x, 4),
                             biased = Multiply(*products_, *w, x, 4, bias.data());
    const std::vector<float> added = Multiply(*products_, *w, x, 4, nullptr, true);
    for (int i = 0; i < 4 * n; ++i) {
      EXPECT_EQ(biased[size_t(i)], plain[size_t(i)] + bias[size_t(i % n)]) << cols;
      EXPECT_EQ(added[size_t(i)], plain[size_t(i)] + 0.5f) << cols;
    }
  }
}

TEST_P(ProductsTest, GatesAreTheProductOfTwoProducts) {
  const std::pair<DType, DType> types[] = {{DType::kQ4_1, DType::kQ4_1}, {DType::kQ4_0, DType::kQ8_0}};
  for (const auto& [gate_type, up_type] : types) {
    for (const auto& [n, cols] : std::vector<std::pair<int, int>>{{32, 64}, {80, 576}, {41, 96}}) {
      const auto gate = Pack(*products_, RandomMatrix(gate_type, n, cols, rng_), n, cols);
      const auto up = Pack(*products_, RandomMatrix(up_type, n, cols, rng_), n, cols);
      for (const int rows : {1, 4, 11}) {
        std::vector<float> x = WholeNumbers(size_t(rows * cols), rng_);
        for (float& v : x) v *= 1e-3f;
        const auto taken = Take(*products_, *gate, x, rows);
        const std::vector<float> u = Multiply(*products_, *up, x, rows);
        for (const GateFunction f : {GateFunction::kSilu, GateFunction::kGeluTanh}) {
          std::vector<float> h(u.size()), expected = Multiply(*products_, *gate, x, rows);
          products_->GateUp(*gate, *up, *taken, rows, f, h.data(), n, 0, PanelsOf(*gate));
          const auto join = f == GateFunction::kSilu ? kScalarKernels.silu_mul : kScalarKernels.gelu_tanh_mul;
          join(expected.data(), u.data(), int64_t(expected.size()));
          EXPECT_TRUE(SameBits(h, expected)) << rows << " rows, " << n << " x " << cols;
        }
      }
    }
  }
}

// Garbage stays in its own row, and has the same bits everywhere.
TEST_P(ProductsTest, NotANumberStaysInItsRow) {
  const int n = 16, cols = 64;
  const Matrix m = RandomMatrix(DType::kQ4_0, n, cols, rng_);
  const auto w = Pack(*products_, m, n, cols);
  std::vector<float> x = WholeNumbers(3 * cols, rng_), clean = x;
  x[cols + 3] = NAN, x[cols + 40] = INFINITY;
  const std::vector<float> y = Multiply(*products_, *w, x, 3), good = Multiply(*products_, *w, clean, 3);
  EXPECT_EQ(std::memcmp(y.data(), good.data(), n * sizeof(float)), 0);
  EXPECT_EQ(std::memcmp(y.data() + 2 * n, good.data() + 2 * n, n * sizeof(float)), 0);
}

INSTANTIATE_TEST_SUITE_P(Ways, ProductsTest,
                         testing::Values(Way{true, CpuIsa::kScalar}, Way{true, CpuIsa::kAvx2},
                                         Way{true, CpuIsa::kAvx512}, Way{false, CpuIsa::kScalar},
                                         Way{false, CpuIsa::kAvx2}, Way{false, CpuIsa::kAvx512}),
                         [](const auto& i) {
                           return absl::StrCat(i.param.native ? "native_" : "bf16_", std::string(Name(i.param.isa)));
                         });

}  // namespace
}  // namespace sluice::kernels::cpu
