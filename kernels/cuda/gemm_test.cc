#include "kernels/cuda/gemm.h"

#include "kernels/cuda/testing/device_array.h"

namespace sluice::kernels::cuda {
namespace {

std::vector<float> Compute(const std::vector<__nv_bfloat16>& a, const std::vector<__nv_bfloat16>& w, int m, int n, int k) {
  DeviceArray<__nv_bfloat16> a_device(a), w_device(w);
  DeviceArray<float> c(size_t(m) * n);
  Check(Gemm({.a = a_device.data(), .w = w_device.data(), .c = c.data(), .m = m, .n = n, .k = k}, nullptr));
  return c.Read();
}

class GemmShapes : public testing::TestWithParam<std::tuple<int, int, int>> {};

TEST_P(GemmShapes, AgreesWithTheDefinitionAndARowWithItselfAlone) {
  SLUICE_NEEDS_DEVICE();
  const auto [m, n, k] = GetParam();
  Numbers numbers(uint64_t(m) * 31 + n * 7 + k);
  const std::vector<__nv_bfloat16> a = numbers.Bf16(size_t(m) * k), w = numbers.Bf16(size_t(n) * k);
  std::vector<double> want(size_t(m) * n);
  for (int i = 0; i < m; ++i) {
    for (int j = 0; j < n; ++j) {
      for (int l = 0; l < k; ++l)
        want[size_t(i) * n + j] += ToDouble(a[size_t(i) * k + l]) * ToDouble(w[size_t(j) * k + l]);
    }
  }
  const std::vector<float> got = Compute(a, w, m, n, k);
  // Products are exact in f32; sums of k of them err by k roundings at most, on numbers of size sqrt(k).
  EXPECT_LE(WorstError(got, want, std::sqrt(double(k))), k * 1.2e-7);
  const int last = m - 1;
  const std::vector<float> alone = Compute({a.begin() + size_t(last) * k, a.end()}, w, 1, n, k);
  EXPECT_TRUE(SameBits(alone, std::vector<float>(got.begin() + size_t(last) * n, got.end())));
}

INSTANTIATE_TEST_SUITE_P(Shapes, GemmShapes,
                         testing::Values(std::tuple(1, 1, 8), std::tuple(3, 70, 40), std::tuple(64, 64, 32),
                                         std::tuple(65, 33, 64), std::tuple(17, 130, 200), std::tuple(128, 96, 72)));

TEST(Gemm, RefusesWhatItCannotDo) {
  SLUICE_NEEDS_DEVICE();
  for (const int k : {0, 4, 12}) EXPECT_EQ(Gemm({.m = 1, .n = 8, .k = k}, nullptr), cudaErrorInvalidValue) << k;
  EXPECT_EQ(Gemm({.m = 0, .n = 8, .k = 8}, nullptr), cudaSuccess);
}

}  // namespace
}  // namespace sluice::kernels::cuda
