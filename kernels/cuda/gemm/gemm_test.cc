#include "kernels/cuda/gemm/gemm.h"

#include <string>

#include "kernels/cuda/testing/device_array.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int kPadding = 5;  // behind the columns of an output; stays as it is

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
std::vector<std::vector<float>> Compute(const Problem& p, int first, int count, bool workspace = true) {
  DeviceArray<__nv_bfloat16> a({p.a.begin() + first * p.k, p.a.begin() + (first + count) * p.k});
  DeviceArray<float> space(workspace ? size_t(1) << 20 : 1);
  GemmArgs args{.a = a.data(),
                .a_stride = p.k,
                .m = count,
                .k = p.k,
                .num_parts = int(p.n.size()),
                .output = p.output,
                .workspace = space.data(),
                .workspace_bytes = workspace ? size_t(4) << 20 : 0};
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
  Check(Gemm(args, nullptr));
  std::vector<std::vector<float>> out;
  for (size_t i = 0; i < (p.gated() ? 1 : p.n.size()); ++i) {
    out.push_back(wide[i]->Read());
    if (p.f32()) continue;
    const std::vector<__nv_bfloat16> read = narrow[i]->Read();
    for (size_t j = 0; j < read.size(); ++j) out[i][j] = __bfloat162float(read[j]);
  }
  return out;
}

void ExpectAll(const Problem& p, const std::vector<std::vector<float>>& got) {
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
    EXPECT_LE(worst, p.k * 1.2e-7 + (p.f32() ? 0 : 1.0 / 256)) << "part " << part;
  }
}

void ExpectRow(const Problem& p, const std::vector<std::vector<float>>& all, int row,
               const std::vector<std::vector<float>>& some, int at, const std::string& what) {
  for (size_t part = 0; part < all.size(); ++part) {
    const size_t stride = size_t(p.n[part] + kPadding);
    EXPECT_EQ(std::memcmp(&all[part][size_t(row) * stride], &some[part][size_t(at) * stride], stride * sizeof(float)),
              0)
        << what << ", part " << part << ", row " << row;
  }
}

class GemmShapes : public testing::TestWithParam<Problem> {};

TEST_P(GemmShapes, AgreesWithTheDefinitionAndARowWithItselfInAnyOtherLaunch) {
  SLUICE_NEEDS_DEVICE();
  const Problem& p = GetParam();
  const auto got = Compute(p, 0, p.m);
  ExpectAll(p, got);
  ExpectRow(p, got, p.m - 1, Compute(p, p.m - 1, 1), 0, "alone");
  ExpectRow(p, got, p.m - 1, Compute(p, p.m - 1, 1, /*workspace=*/false), 0, "alone in one block");
  const int some = std::min(p.m, 20);
  ExpectRow(p, got, 0, Compute(p, 0, some), 0, "with a few others");
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, GemmShapes,
    testing::Values(Problem(1, 64, {1}, GemmOutput::kF32), Problem(3, 128, {70}, GemmOutput::kBf16, true),
                    Problem(17, 64, {64, 20, 33}, GemmOutput::kBf16, true), Problem(65, 192, {33}, GemmOutput::kAdd),
                    Problem(70, 64, {30, 30}, GemmOutput::kGatedSilu),
                    Problem(5, 64, {130, 130}, GemmOutput::kGatedGelu), Problem(2, 2176, {9}, GemmOutput::kF32),
                    Problem(66, 2176, {9}, GemmOutput::kF32, true), Problem(18, 2048, {5, 5}, GemmOutput::kGatedSilu),
                    Problem(130, 64, {129}, GemmOutput::kF32)),
    [](const auto& shape) {
      return "Rows" + std::to_string(shape.param.m) + "Depth" + std::to_string(shape.param.k) + "Parts" +
             std::to_string(shape.param.n.size()) + "Output" + std::to_string(int(shape.param.output));
    });

TEST(Gemm, ARankOfMoreHasTheBitsOfOne) {
  SLUICE_NEEDS_DEVICE();
  const Problem whole(3, 2048, {24}, GemmOutput::kF32);
  const auto all = Compute(whole, 0, whole.m);
  Problem half(whole);
  half.n = {11};
  half.w[0].resize(size_t(half.n[0] * half.k));
  const auto part = Compute(half, 0, half.m);
  for (int i = 0; i < whole.m; ++i) {
    for (int j = 0; j < half.n[0]; ++j) {
      EXPECT_EQ(part[0][size_t(i * (half.n[0] + kPadding) + j)], all[0][size_t(i * (whole.n[0] + kPadding) + j)]);
    }
  }
}

TEST(Gemm, SlicesCoverEveryDepthAndFollowFromItAlone) {
  for (int k = 64; k <= 65536; k += 64) {
    const GemmSlicing s = GemmSlices(k);
    EXPECT_EQ(s.length % kGemmDepth, 0);
    EXPECT_LE(s.slices, 8);
    EXPECT_LT((s.slices - 1) * s.length, k);
    EXPECT_GE(s.slices * s.length, k);
  }
  EXPECT_EQ(GemmSlices(4096).slices, 4);
}

TEST(Gemm, RefusesWhatItCannotDo) {
  SLUICE_NEEDS_DEVICE();
  GemmArgs args{.a_stride = 64, .m = 1, .k = 64};
  EXPECT_EQ(Gemm(args, nullptr), cudaErrorInvalidValue) << "no columns";
  args.parts[0].n = 8;
  for (const int k : {0, 32, 100}) {
    args.k = k;
    EXPECT_EQ(Gemm(args, nullptr), cudaErrorInvalidValue) << k;
  }
  args.k = 64;
  args.output = GemmOutput::kGatedSilu;
  EXPECT_EQ(Gemm(args, nullptr), cudaErrorInvalidValue) << "one part";
  args.m = 0;
  args.output = GemmOutput::kF32;
  EXPECT_EQ(Gemm(args, nullptr), cudaSuccess);
}

}  // namespace
}  // namespace sluice::kernels::cuda
