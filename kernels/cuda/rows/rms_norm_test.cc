#include "kernels/cuda/rows/rms_norm.h"

#include "kernels/cuda/testing/device_array.h"

namespace sluice::kernels::cuda {
namespace {

constexpr float kEps = 1e-5f;

// Rows of `width` numbers, padded with zeros to a multiple of four, and a few more.
struct Rows {
  int rows, width, stride;
  std::vector<float> x;

  Rows(int r, int w, Numbers& numbers) : rows(r), width(w), stride((w + 3) / 4 * 4 + 8), x(size_t(r * stride)) {
    for (int i = 0; i < rows; ++i) {
      for (int j = 0; j < width; ++j) x[size_t(i * stride + j)] = numbers.Next(3);
    }
  }
};

// Of the chosen rows, or of all: [rows][stride], where nothing was written 77.
std::vector<__nv_bfloat16> Compute(const Rows& in, std::vector<float> weight, const std::vector<int32_t>* chosen) {
  weight.resize(size_t(in.stride));
  const int rows = chosen == nullptr ? in.rows : int(chosen->size());
  DeviceArray<float> x(in.x), weights(weight);
  DeviceArray<__nv_bfloat16> out(std::vector<__nv_bfloat16>(size_t(rows * in.stride), __float2bfloat16_rn(77)));
  DeviceArray<int32_t> choice(chosen == nullptr ? std::vector<int32_t>(1) : *chosen);
  Check(RmsNorm({.x = x.data(),
                 .x_stride = in.stride,
                 .weight = weights.data(),
                 .chosen = chosen == nullptr ? nullptr : choice.data(),
                 .out = out.data(),
                 .out_stride = in.stride,
                 .rows = rows,
                 .width = in.width,
                 .eps = kEps},
                nullptr));
  return out.Read();
}

class RmsNormShapes : public testing::TestWithParam<std::tuple<int, int>> {};

TEST_P(RmsNormShapes, AgreesWithTheDefinition) {
  SLUICE_NEEDS_DEVICE();
  const auto [rows, width] = GetParam();
  Numbers numbers(uint64_t(rows) * 1000003 + uint64_t(width));
  const Rows in(rows, width, numbers);
  const std::vector<float> weight = numbers.Floats(size_t(width));
  const std::vector<__nv_bfloat16> got = Compute(in, weight, nullptr);
  for (int row = 0; row < rows; ++row) {
    const float* x = &in.x[size_t(row * in.stride)];
    double squares = 0;
    for (int i = 0; i < width; ++i) squares += double(x[i]) * x[i];
    const double scale = 1 / std::sqrt(squares / width + kEps);
    std::vector<double> want;
    for (int i = 0; i < width; ++i) want.push_back(x[i] * scale * weight[size_t(i)]);
    const std::vector<__nv_bfloat16> here(got.begin() + row * in.stride, got.begin() + row * in.stride + width);
    EXPECT_LE(WorstError(here, want, 1e-6), 1.0 / 256 + 1e-4) << "half a unit of bf16 is 1/512 of a number";
    for (int i = width; i < in.stride; ++i) {
      const double after = ToDouble(got[size_t(row * in.stride + i)]);
      EXPECT_EQ(after, i < (width + 3) / 4 * 4 ? 0 : 77) << "zeros to the end of a vector, then nothing";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, RmsNormShapes,
                         testing::Values(std::tuple(1, 1), std::tuple(1, 4), std::tuple(3, 63), std::tuple(5, 576),
                                         std::tuple(2, 1000), std::tuple(2, 4096), std::tuple(1, 4101),
                                         std::tuple(1, 20000)));

TEST(RmsNorm, ARowDoesNotDependOnTheRowsBesideItAndRowsCanBeChosen) {
  SLUICE_NEEDS_DEVICE();
  Numbers numbers(5);
  const Rows in(5, 300, numbers);
  const std::vector<float> weight = numbers.Floats(300);
  const std::vector<__nv_bfloat16> all = Compute(in, weight, nullptr);
  for (const std::vector<int32_t>& chosen : {std::vector<int32_t>{3}, {4, 0}, {0, 1, 2, 3, 4}}) {
    const std::vector<__nv_bfloat16> some = Compute(in, weight, &chosen);
    for (size_t i = 0; i < chosen.size(); ++i) {
      EXPECT_TRUE(std::memcmp(&some[i * size_t(in.stride)], &all[size_t(chosen[i] * in.stride)],
                              size_t(in.width) * sizeof(all[0])) == 0)
          << chosen[i];
    }
  }
}

TEST(RmsNorm, RefusesWhatItCannotDo) {
  SLUICE_NEEDS_DEVICE();
  RmsNormArgs args;
  args.rows = 1;
  for (const int width : {0, -4, 32772}) {
    args.width = width;
    EXPECT_EQ(RmsNorm(args, nullptr), cudaErrorInvalidValue) << width;
  }
  args.width = 64;
  args.x_stride = 66;
  EXPECT_EQ(RmsNorm(args, nullptr), cudaErrorInvalidValue);
  args.x_stride = 64;
  args.rows = 0;
  EXPECT_EQ(RmsNorm(args, nullptr), cudaSuccess);
}

}  // namespace
}  // namespace sluice::kernels::cuda
