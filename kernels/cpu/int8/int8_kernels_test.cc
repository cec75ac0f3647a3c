// The kernels of int8 mode: rotation, rounding and products of each instruction set against plain loops, and all of
// them against the scalar ones to the bit.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/conformance/tiny_model.h"
#include "kernels/cpu/int8/int8_table.h"
#include "kernels/cpu/int8/int8_weight.h"
#include "kernels/cpu/isa.h"

namespace sluice::kernels::cpu {
namespace {

using conformance::Matrix;
using conformance::RandomMatrix;

constexpr uint32_t kSeed = 4711;

class Int8KernelsTest : public testing::TestWithParam<CpuIsa> {
 protected:
  void SetUp() override {
    if (!ResolveCpuIsa(GetParam()).ok()) GTEST_SKIP() << "this CPU lacks " << Name(GetParam());
  }
  const Int8Table& kernels() const { return Int8KernelsFor(GetParam()); }
};

std::vector<float> Normals(size_t n, std::mt19937& rng) {
  std::normal_distribution<float> normal(0.0f, 1.0f);
  std::vector<float> v(n);
  for (float& x : v) x = normal(rng);
  return v;
}

template <class T>
bool SameBits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

const int kWidths[] = {1, 16, 48, 64, 96, 112, 320, 576, 640, 896, 1000, 1536, 4864};

TEST_P(Int8KernelsTest, RotationsAreOrthogonal) {
  std::mt19937 rng(kSeed);
  for (const int cols : kWidths) {
    const Rotation r = PlanRotation(cols);
    // Columns of R from unit vectors: gain * I when multiplied.
    const int64_t n = r.vectors * 16;
    std::vector<std::vector<float>> columns;
    for (int64_t i = 0; i < n; i += std::max<int64_t>(1, n / 40)) {
      std::vector<float> unit(size_t(n), 0.0f);
      unit[size_t(i)] = 1.0f;
      kernels().rotate(r, unit.data());
      columns.push_back(unit);
    }
    for (size_t a = 0; a < columns.size(); ++a) {
      for (size_t b = 0; b <= a; ++b) {
        double dot = 0;
        for (int64_t k = 0; k < n; ++k) dot += double(columns[a][size_t(k)]) * columns[b][size_t(k)];
        ASSERT_NEAR(dot / r.gain, a == b ? 1.0 : 0.0, 1e-5) << cols << " columns: " << a << ", " << b;
      }
    }
    // Where only Hadamard factors occur, every channel spreads evenly.
    bool even = true;
    for (int s = 0; s < r.stages; ++s) even = even && r.stage[size_t(s)].hadamard;
    if (even) {
      for (const float v : columns[0]) ASSERT_EQ(std::abs(v), 1.0f) << cols;
    }
  }
}

TEST_P(Int8KernelsTest, RotationHasTheBitsOfTheScalarOne) {
  std::mt19937 rng(kSeed);
  for (const int cols : kWidths) {
    const Rotation r = PlanRotation(cols);
    std::vector<float> x = Normals(size_t(r.vectors) * 16, rng), scalar = x;
    kernels().rotate(r, x.data());
    kScalarInt8.rotate(r, scalar.data());
    EXPECT_TRUE(SameBits(x, scalar)) << cols;
  }
}

TEST_P(Int8KernelsTest, RoundingIsToNearestEvenOfTheRowsOwnScale) {
  std::mt19937 rng(kSeed);
  for (const int vectors : {1, 3, 36}) {
    std::vector<float> x = Normals(size_t(vectors) * 16, rng);
    x[5] = 127.0f, x[6] = -127.0f, x[7] = 2.5f, x[8] = 3.5f, x[9] = -2.5f;  // the scale is 1
    std::vector<uint8_t> bytes(size_t(PadInt8(vectors * 16)), 7);
    EXPECT_EQ(kernels().round(x.data(), vectors, bytes.data(), int64_t(bytes.size())), 1.0f);
    for (size_t i = 0; i < bytes.size(); ++i) {
      const float expected = i < x.size() ? std::nearbyint(x[i]) : 0.0f;
      EXPECT_EQ(float(bytes[i]) - 128.0f, expected) << i;
    }
    std::vector<float> zeros(x.size(), 0.0f);
    EXPECT_EQ(kernels().round(zeros.data(), vectors, bytes.data(), int64_t(bytes.size())), 0.0f);
    for (const uint8_t b : bytes) EXPECT_EQ(b, 128);
    // Anything at all gives the scalar's bytes.
    x[0] = NAN, x[1] = INFINITY, x[2] = 1e-40f;
    std::vector<uint8_t> scalar(bytes.size());
    kernels().round(x.data(), vectors, bytes.data(), int64_t(bytes.size()));
    kScalarInt8.round(x.data(), vectors, scalar.data(), int64_t(scalar.size()));
    EXPECT_TRUE(SameBits(bytes, scalar));
  }
}

struct Quantised {
  std::vector<uint8_t> bytes;
  std::vector<float> scales;
  Int8Rows view(int64_t rows) const { return {bytes.data(), scales.data(), rows}; }
};

Quantised QuantiseRows(const Int8Table& kernels, const std::vector<float>& x, int64_t rows, int64_t cols) {
  const Rotation r = PlanRotation(cols);
  Quantised q;
  const int64_t k = PadInt8(cols);
  q.bytes.resize(size_t(rows * k));
  for (int64_t m = 0; m < rows; ++m) {
    std::vector<float> row(size_t(r.vectors) * 16, 0.0f);
    std::copy_n(x.data() + m * cols, cols, row.begin());
    kernels.rotate(r, row.data());
    q.scales.push_back(kernels.round(row.data(), r.vectors, q.bytes.data() + m * k, k));
  }
  return q;
}

TEST_P(Int8KernelsTest, ProductsAreCloseToThoseOfFloatsAndHaveTheScalarBits) {
  std::mt19937 rng(kSeed);
  ThreadPool pool(2);
  for (const auto& [n, cols] : std::vector<std::pair<int, int>>{{16, 64}, {40, 576}, {100, 96}, {33, 1000}, {1, 48}}) {
    const Matrix w = RandomMatrix(DType::kF32, n, cols, rng);
    const HostTensor tensor{w.type, w.bytes.data(), n, cols};
    auto packed = Int8Weight::Pack(tensor, {}, KernelsFor(GetParam()), kernels(), pool);
    auto scalar_packed = Int8Weight::Pack(tensor, {}, kScalarKernels, kScalarInt8, pool);
    ASSERT_TRUE(packed.ok() && scalar_packed.ok());
    ASSERT_EQ(std::memcmp((*packed)->view().data, (*scalar_packed)->view().data,
                          size_t((*packed)->panels()) * kPanelRows * size_t(PadInt8(cols))),
              0);
    std::vector<std::vector<float>> weight_rows;
    for (int j = 0; j < n; ++j) weight_rows.push_back(w.Row(j));
    for (const int rows : {1, 2, 3, 5, 6, 7, 13}) {
      const std::vector<float> x = Normals(size_t(rows) * size_t(cols), rng);
      const Quantised q = QuantiseRows(kernels(), x, rows, cols);
      const std::vector<float> bias = Normals(size_t(n), rng);
      for (const bool accumulate : {false, true}) {
        std::vector<float> y(size_t(rows) * size_t(n), 0.5f), scalar = y;
        const auto out = [&](std::vector<float>& to) {
          return ProductOutput{to.data(), n, accumulate ? nullptr : bias.data(), accumulate};
        };
        kernels().matmul(q.view(rows), (*packed)->view(), out(y), 0, (*packed)->panels());
        kScalarInt8.matmul(q.view(rows), (*scalar_packed)->view(), out(scalar), 0, (*packed)->panels());
        ASSERT_TRUE(SameBits(y, scalar)) << rows << " rows, " << n << " x " << cols;
        double error = 0, size = 0;
        for (int m = 0; m < rows; ++m) {
          for (int j = 0; j < n; ++j) {
            double exact = accumulate ? 0.5 : double(bias[size_t(j)]);
            double only = 0;
            for (int i = 0; i < cols; ++i) {
              only += double(x[size_t(m) * size_t(cols) + size_t(i)]) * weight_rows[size_t(j)][size_t(i)];
            }
            exact += only;
            error += std::pow(exact - y[size_t(m) * size_t(n) + size_t(j)], 2);
            size += only * only;
          }
        }
        // Both sides rounded to max / 127: of normal values about 0.6 % to 1 % each.
        EXPECT_LT(std::sqrt(error / size), 0.03) << rows << " rows, " << n << " x " << cols;
      }
    }
  }
}

TEST_P(Int8KernelsTest, RowsTooLongToSumAreRefused) {
  ThreadPool pool(1);
  const std::vector<float> row(size_t(kMostInt8Columns) + 1, 1.0f);
  const auto pack = [&](int64_t cols) {
    return Int8Weight::Pack({DType::kF32, row.data(), 1, cols}, {}, KernelsFor(GetParam()), kernels(), pool).status();
  };
  EXPECT_TRUE(pack(kMostInt8Columns).ok());
  EXPECT_EQ(pack(kMostInt8Columns + 1).code(), absl::StatusCode::kInvalidArgument);
}

TEST_P(Int8KernelsTest, GatesAreTheProductOfTwoProducts) {
  std::mt19937 rng(kSeed);
  ThreadPool pool(1);
  for (const auto& [n, cols] : std::vector<std::pair<int, int>>{{32, 64}, {80, 576}, {41, 96}}) {
    const Matrix g = RandomMatrix(DType::kF32, n, cols, rng), u = RandomMatrix(DType::kF32, n, cols, rng);
    auto gate = Int8Weight::Pack({g.type, g.bytes.data(), n, cols}, {}, KernelsFor(GetParam()), kernels(), pool);
    auto up = Int8Weight::Pack({u.type, u.bytes.data(), n, cols}, {}, KernelsFor(GetParam()), kernels(), pool);
    ASSERT_TRUE(gate.ok() && up.ok());
    for (const int rows : {1, 4, 7}) {
      const Quantised q = QuantiseRows(kernels(), Normals(size_t(rows) * size_t(cols), rng), rows, cols);
      std::vector<float> a(size_t(rows) * size_t(n)), b = a, h = a;
      kernels().matmul(q.view(rows), (*gate)->view(), {a.data(), n, nullptr, false}, 0, (*gate)->panels());
      kernels().matmul(q.view(rows), (*up)->view(), {b.data(), n, nullptr, false}, 0, (*up)->panels());
      for (const GateFunction f : {GateFunction::kSilu, GateFunction::kGeluTanh}) {
        kernels().gate_up(q.view(rows), (*gate)->view(), (*up)->view(), f, h.data(), n, 0, (*gate)->panels());
        std::vector<float> expected = a;
        const auto join = f == GateFunction::kSilu ? kScalarKernels.silu_mul : kScalarKernels.gelu_tanh_mul;
        join(expected.data(), b.data(), int64_t(expected.size()));
        EXPECT_TRUE(SameBits(h, expected)) << rows << " rows, " << n << " x " << cols;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, Int8KernelsTest,
                         testing::Values(CpuIsa::kScalar, CpuIsa::kAvx2, CpuIsa::kAvx512, CpuIsa::kAmx),
                         [](const auto& i) { return std::string(Name(i.param)); });

}  // namespace
}  // namespace sluice::kernels::cpu
