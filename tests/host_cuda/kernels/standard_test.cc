// CUDA's C++ standard library, as nvcc compiles it, in every order.
#include "tests/host_cuda/kernels/standard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <numeric>
#include <vector>

#include "tests/host_cuda/engine/sanitizers.h"
#include "tests/host_cuda/testing/every_order.h"
#include "tests/host_cuda/testing/run_by_name.h"

namespace {

using host_cuda::testing::ForEveryOrder;
using host_cuda::testing::RunByName;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::vector<int> Numbers(int n) {
  std::vector<int> numbers(n);
  for (int i = 0; i < n; ++i) numbers[i] = 7 * i + 1;
  return numbers;
}

TEST(Standard, BarriersWaitForCopies) {
  const std::vector<int> in = Numbers(kStandardThreads);
  ForEveryOrder([&] {
    std::vector<int> out(kStandardThreads);
    ASSERT_EQ(RunByName("BarrierCopy", 1, kStandardThreads, in.data(), out.data()), "");
    for (int i = 0; i < kStandardThreads; ++i) {
      EXPECT_EQ(out[i], in[kStandardThreads - 1 - (i + 1) % kStandardThreads] + 1);
    }
  });
}

TEST(Standard, Pipelines) {
  for (const int rounds : {1, 2, 7}) {
    const std::vector<int> in = Numbers(rounds * kStandardThreads);
    ForEveryOrder([&] {
      std::vector<int> out(in.size());
      ASSERT_EQ(RunByName("Pipeline", 1, kStandardThreads, in.data(), out.data(), rounds), "");
      for (int round = 0; round < rounds; ++round) {
        for (int i = 0; i < kStandardThreads; ++i) {
          ASSERT_EQ(out[round * kStandardThreads + i], in[(round + 1) * kStandardThreads - 1 - i]) << "round " << round;
        }
      }
    });
  }
}

TEST(Standard, GroupsCopyAndPart) {
  const std::vector<int> in = Numbers(kStandardThreads);
  ForEveryOrder([&] {
    std::vector<int> out(kStandardThreads), sizes(kStandardThreads);
    ASSERT_EQ(RunByName("GroupCopy", 1, kStandardThreads, in.data(), out.data(), sizes.data()), "");
    for (int i = 0; i < kStandardThreads; ++i) {
      EXPECT_EQ(out[i], in[kStandardThreads - 1 - i] + in[i ^ 3]);
      int same = 0;
      for (int j = i / 32 * 32; j < i / 32 * 32 + 32; ++j) same += j % 3 == i % 3 ? 1 : 0;
      EXPECT_EQ(sizes[i], same);
    }
  });
}

TEST(Standard, AtomicsWithOrders) {
  ForEveryOrder([] {
    int counter = 0, sum = 0;
    alignas(8) long long most = -1;
    std::vector<int> values(kStandardThreads);
    ASSERT_EQ(RunByName("Atomics", 1, kStandardThreads, &counter, &most, values.data(), &sum), "");
    EXPECT_EQ(sum, 3 * kStandardThreads * (kStandardThreads - 1) / 2);
    EXPECT_EQ(most, kStandardThreads - 1);
    EXPECT_EQ(counter, -7);
  });
}

TEST(Standard, TheHeapOfTheDevice) {
  std::vector<int> out(64);
  ForEveryOrder([&] {
    ASSERT_EQ(RunByName("Heap", 1, 32, out.data(), 0), "");
    for (int i = 0; i < 32; ++i) {
      EXPECT_EQ(out[2 * i], -1) << "fresh memory is full of 0xff";
      EXPECT_EQ(out[2 * i + 1], i + 7 + 4);
    }
  });
  ASSERT_EQ(RunByName("Heap", 1, 1, out.data(), 4), "");
  EXPECT_EQ(out[0], 1);
  EXPECT_THAT(RunByName("Heap", 1, 32, out.data(), 2),
              AllOf(HasSubstr("which is no memory of malloc"), HasSubstr("standard.cu:")));
  EXPECT_THAT(RunByName("Heap", 1, 32, out.data(), 3), HasSubstr("which is no memory of malloc"));
#if defined(HOST_CUDA_ASAN)
  EXPECT_DEATH(RunByName("Heap", 1, 1, out.data(), 1), "heap-buffer-overflow");
#endif
}

// The message, and an error that stays.
TEST(Standard, AssertionsAreSticky) {
  setenv("HOST_CUDA_ON_ERROR", "report", 1);
  ASSERT_EQ(LaunchAsserts(2), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  ::testing::internal::CaptureStderr();
  ASSERT_EQ(LaunchAsserts(3), cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorAssert);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("assertion `n < 3' failed"), HasSubstr("standard.cu:")));
  void* memory = nullptr;
  EXPECT_EQ(cudaMalloc(&memory, 16), cudaErrorAssert);
  EXPECT_EQ(LaunchAsserts(2), cudaErrorAssert);
}

}  // namespace
