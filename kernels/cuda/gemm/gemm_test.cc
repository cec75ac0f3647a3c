#include "kernels/cuda/gemm/gemm.h"

#include <string>

#include "kernels/cuda/testing/products.h"

namespace sluice::kernels::cuda {
namespace {

std::vector<std::vector<float>> Compute(const Problem& p, int first, int count, bool workspace = true) {
  return RunProblem(p, first, count, workspace ? size_t(4) << 20 : 0,
                    [](const GemmArgs& args) { Check(Gemm(args, nullptr)); });
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
