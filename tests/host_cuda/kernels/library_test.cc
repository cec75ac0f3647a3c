// What kernels use of the toolkit, as nvcc compiles it, gives what it should in every order.
#include "tests/host_cuda/kernels/library.h"

#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "tests/host_cuda/testing/every_order.h"
#include "tests/host_cuda/testing/run_by_name.h"

namespace {

using host_cuda::testing::ForEveryOrder;
using host_cuda::testing::RunByName;
using ::testing::HasSubstr;

TEST(Library, CubSumsScansAndSorts) {
  std::vector<unsigned> in(kThreads * kItems);
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<unsigned>(i * 2654435761u >> 20);
  ForEveryOrder(
      [&] {
        unsigned sum = 0;
        std::vector<unsigned> scan(in.size()), sorted(in.size()), expected_scan(in.size()), expected(in);
        ASSERT_EQ(RunByName("CubBlock", 1, kThreads, in.data(), &sum, scan.data(), sorted.data()), "");
        std::exclusive_scan(in.begin(), in.end(), expected_scan.begin(), 0u);
        std::sort(expected.begin(), expected.end());
        EXPECT_EQ(sum, std::accumulate(in.begin(), in.end(), 0u));
        EXPECT_EQ(scan, expected_scan);
        EXPECT_EQ(sorted, expected);
      },
      5);
}

TEST(Library, CooperativeGroups) {
  std::vector<int> in(64);
  for (int i = 0; i < 64; ++i) in[i] = i % 11;
  ForEveryOrder([&] {
    std::vector<int> sums(8);
    int any = -1;
    ASSERT_EQ(RunByName("Groups", 1, 64, in.data(), sums.data(), &any), "");
    for (int tile = 0; tile < 8; ++tile) {
      const auto first = in.begin() + 8 * tile;
      EXPECT_EQ(sums[tile], std::accumulate(first, first + 8, 0) + (std::count(first, first + 8, 3) != 0 ? 1 : 0));
    }
    EXPECT_EQ(any, 0);
  });
}

TEST(Library, PrintfAndAssert) {
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(RunByName("Print", 1, 32, 5), "");
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "n 5, half 2.500000, text abc, 1099511627776%\n");
  EXPECT_THAT(RunByName("Print", 1, 32, 7),
              ::testing::AllOf(HasSubstr("assertion `n != 7' failed"), HasSubstr("library.cu:")));
}

TEST(Library, HalvesAndBytes) {
  const std::vector<float> in = {0, 1, -2, 0.3f, 500, -0.01f, 3.3f};
  const std::vector<float> e4m3 = {0, 1, -2, 0.3125f, 448, -0.009765625f, 3.25f};
  std::vector<float> out(3 * in.size());
  ASSERT_EQ(RunByName("Halves", 1, 32, in.data(), out.data(), static_cast<int>(in.size())), "");
  for (size_t i = 0; i < in.size(); ++i) {
    if (i != 4) {
      EXPECT_NEAR(out[3 * i], in[i] * in[i] + 1, 1e-2);
      EXPECT_NEAR(out[3 * i + 2], std::exp(in[i]), 2e-3 * std::exp(in[i]));
    }
    EXPECT_EQ(out[3 * i + 1], e4m3[i]);
  }
  EXPECT_TRUE(std::isinf(out[12])) << "500 squared is no half";
}

}  // namespace
