#include "kernels/cuda/rms_norm.h"

#include "kernels/cuda/testing/device_array.h"

namespace sluice::kernels::cuda {
namespace {

constexpr float kEps = 1e-5f;

struct Result {
  std::vector<float> x;
  std::vector<__nv_bfloat16> out;
};

Result Compute(const std::vector<float>& x, const std::vector<__nv_bfloat16>* delta,
           const std::vector<__nv_bfloat16>& weight, int rows, int width) {
  DeviceArray<float> x_device(x);
  DeviceArray<__nv_bfloat16> weight_device(weight), out(x.size());
  std::unique_ptr<DeviceArray<__nv_bfloat16>> delta_device;
  if (delta != nullptr) delta_device = std::make_unique<DeviceArray<__nv_bfloat16>>(*delta);
  RmsNormArgs args;
  args.x = x_device.data();
  args.delta = delta == nullptr ? nullptr : delta_device->data();
  args.weight = weight_device.data();
  args.out = out.data();
  args.rows = rows;
  args.width = width;
  args.eps = kEps;
  Check(RmsNorm(args, nullptr));
  return {x_device.Read(), out.Read()};
}

class RmsNormShapes : public testing::TestWithParam<std::tuple<int, int>> {};

TEST_P(RmsNormShapes, AgreesWithTheDefinition) {
  SLUICE_NEEDS_DEVICE();
  const auto [rows, width] = GetParam();
  Numbers numbers(uint64_t(rows) * 1000003 + width);
  const std::vector<float> x = numbers.Floats(size_t(rows) * width, 3);
  const std::vector<__nv_bfloat16> delta = numbers.Bf16(x.size()), weight = numbers.Bf16(width);
  for (const auto* added : {&delta, static_cast<const std::vector<__nv_bfloat16>*>(nullptr)}) {
    const Result got = Compute(x, added, weight, rows, width);
    std::vector<float> sum(x);
    std::vector<double> want(x.size());
    for (int row = 0; row < rows; ++row) {
      double squares = 0;
      for (size_t i = size_t(row) * width; i < size_t(row + 1) * width; ++i) {
        if (added != nullptr) sum[i] += __bfloat162float(delta[i]);
        squares += double(sum[i]) * sum[i];
      }
      const double scale = 1 / std::sqrt(squares / width + kEps);
      for (int i = 0; i < width; ++i) {
        want[size_t(row) * width + i] = sum[size_t(row) * width + i] * scale * ToDouble(weight[i]);
      }
    }
    EXPECT_TRUE(SameBits(got.x, sum));
    EXPECT_LE(WorstError(got.out, want, 1e-6), 1.0 / 256 + 1e-4) << "half a unit of bf16 is 1/512 of a number";
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, RmsNormShapes,
                         testing::Values(std::tuple(1, 4), std::tuple(3, 64), std::tuple(5, 576), std::tuple(2, 1000),
                                         std::tuple(2, 4096), std::tuple(1, 4100), std::tuple(1, 20000)));

TEST(RmsNorm, ARowDoesNotDependOnTheRowsBesideIt) {
  SLUICE_NEEDS_DEVICE();
  constexpr int kRows = 5, kWidth = 300;
  Numbers numbers(5);
  const std::vector<float> x = numbers.Floats(kRows * kWidth);
  const std::vector<__nv_bfloat16> weight = numbers.Bf16(kWidth);
  const Result all = Compute(x, nullptr, weight, kRows, kWidth);
  for (int row = 0; row < kRows; ++row) {
    const auto part = [&](const auto& v) {
      return std::decay_t<decltype(v)>(v.begin() + row * kWidth, v.begin() + (row + 1) * kWidth);
    };
    EXPECT_TRUE(SameBits(Compute(part(x), nullptr, weight, 1, kWidth).out, part(all.out))) << row;
  }
}

TEST(RmsNorm, RefusesWhatItCannotDo) {
  SLUICE_NEEDS_DEVICE();
  RmsNormArgs args;
  args.rows = 1;
  for (const int width : {0, -4, 6, 32772}) {
    args.width = width;
    EXPECT_EQ(RmsNorm(args, nullptr), cudaErrorInvalidValue) << width;
  }
  args.width = 64;
  args.rows = 0;
  EXPECT_EQ(RmsNorm(args, nullptr), cudaSuccess);
}

}  // namespace
}  // namespace sluice::kernels::cuda
