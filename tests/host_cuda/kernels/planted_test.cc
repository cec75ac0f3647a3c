// Every planted bug is caught, in every order that can show it, with words that name it; without a bug everything is
// right in every order.
#include "tests/host_cuda/kernels/planted.h"

#include <cuda_bf16.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "tests/host_cuda/engine/sanitizers.h"
#include "tests/host_cuda/engine/settings.h"
#include "tests/host_cuda/testing/every_order.h"
#include "tests/host_cuda/testing/run_by_name.h"

namespace {

using host_cuda::testing::ForEveryOrder;
using host_cuda::testing::RunByName;
using ::testing::HasSubstr;

constexpr int kThreads = 96;

std::vector<float> Numbers(size_t n) {
  std::vector<float> values(n);
  for (size_t i = 0; i < n; ++i) values[i] = static_cast<float>(i % 17) - 5;
  return values;
}

// What RunGrid says, or "wrong" where the sums are.
std::string BlockSum(int bug) {
  constexpr int kBlocks = 3;
  const std::vector<float> in = Numbers(kBlocks * kThreads);
  const auto out = std::make_unique<float[]>(kBlocks);
  const std::string error = RunByName("BlockSum", kBlocks, kThreads, in.data(), out.get(), bug);
  if (!error.empty()) return error;
  for (int block = 0; block < kBlocks; ++block) {
    float sum = 0;
    for (int i = 0; i < kThreads; ++i) sum += in[block * kThreads + i];
    if (out[block] != sum) return std::isnan(out[block]) ? "wrong: NaN" : "wrong";
  }
  return "";
}

std::string Tiles(int bug) {
  constexpr int kRounds = 5;
  const std::vector<float> in = Numbers(kRounds * kThreads);
  std::vector<float> out(kThreads);
  const std::string error = RunByName("Tiles", 1, kThreads, in.data(), out.data(), kRounds, bug);
  if (!error.empty()) return error;
  for (int thread = 0; thread < kThreads; ++thread) {
    float sum = 0;
    for (int round = 0; round < kRounds; ++round) sum += in[round * kThreads + (thread + 33) % kThreads];
    if (out[thread] != sum) return std::isnan(out[thread]) ? "wrong: NaN" : "wrong";
  }
  return "";
}

std::string OneMma(int bug) {
  std::vector<__nv_bfloat16> a(256), b(128);
  for (int i = 0; i < 256; ++i) a[i] = __float2bfloat16(static_cast<float>(i % 7 - 3));
  for (int i = 0; i < 128; ++i) b[i] = __float2bfloat16(static_cast<float>(i % 5 - 2));
  std::vector<float> c(128);
  const std::string error = RunByName("OneMma", 1, 32, a.data(), b.data(), c.data(), bug);
  if (!error.empty()) return error;
  for (int row = 0; row < 16; ++row) {
    for (int column = 0; column < 8; ++column) {
      float sum = 0;
      for (int k = 0; k < 16; ++k) sum += __bfloat162float(a[row * 16 + k]) * __bfloat162float(b[k * 8 + column]);
      if (c[row * 8 + column] != sum) return "wrong";
    }
  }
  return "";
}

std::string HandOver(int bug) {
  const float in = 42;
  float out = 0;
  const std::string error = RunByName("HandOver", 1, 64, &in, &out, bug);
  return error.empty() && out != 42 ? "wrong" : error;
}

TEST(Planted, NothingIsReportedWithoutABug) {
  ForEveryOrder([] {
    EXPECT_EQ(BlockSum(kNone), "");
    EXPECT_EQ(Tiles(kNone), "");
    EXPECT_EQ(OneMma(kNone), "");
    EXPECT_EQ(HandOver(kNone), "");
  });
}

#if !defined(HOST_CUDA_TSAN)  // there it is a race; see below
TEST(Planted, MissingBarrier) {
  // A fair or ascending order may hide it; the greedy descending one can't, and of the seeds most don't.
  int caught = 0;
  ForEveryOrder([&] { caught += BlockSum(kNoBarrier).starts_with("wrong") ? 1 : 0; });
  EXPECT_GE(caught, 15);
}
#endif

TEST(Planted, EarlyExitBeforeABarrier) {
  ForEveryOrder([] {
    EXPECT_THAT(BlockSum(kEarlyExit), ::testing::AllOf(HasSubstr("divergent barrier"), HasSubstr("planted.cu:"),
                                                       HasSubstr("in kernel BlockSum, block (")));
  });
}

TEST(Planted, HalfAWarpWithAFullMask) {
  ForEveryOrder([] {
    EXPECT_THAT(BlockSum(kHalfWarp), ::testing::AllOf(HasSubstr("lanes of one warp meet in different operations"),
                                                      HasSubstr("planted.cu:2")));
  });
}

TEST(Planted, SharedOverrun) {
#if defined(HOST_CUDA_ASAN)
  EXPECT_DEATH(BlockSum(kSharedOverrun), "use-after-poison.*planted.cu:[0-9]+");
#else
  ForEveryOrder([] { EXPECT_THAT(BlockSum(kSharedOverrun), HasSubstr("shared memory overrun")); });
#endif
}

#if defined(HOST_CUDA_ASAN)
TEST(Planted, GlobalOverrun) {
  EXPECT_DEATH(BlockSum(kGlobalOverrun), "heap-buffer-overflow.*planted.cu:[0-9]+");
}
#endif

TEST(Planted, UninitialisedSharedMemory) {
  ForEveryOrder([] { EXPECT_EQ(BlockSum(kUninitialised), "wrong: NaN"); });
}

TEST(Planted, MissingWaitForACopy) {
  ForEveryOrder([] { EXPECT_EQ(Tiles(kNoWait), "wrong: NaN"); });
}

#if !defined(HOST_CUDA_TSAN)  // there it is a race; see below
TEST(Planted, MissingBarrierAfterARead) {
  int caught = 0;
  ForEveryOrder([&] { caught += Tiles(kNoBarrierAfterRead).starts_with("wrong") ? 1 : 0; });
  EXPECT_GE(caught, 15);
}
#endif

TEST(Planted, WrongFragment) {
  EXPECT_EQ(OneMma(kFragment), "wrong");
}

TEST(Planted, HostSideLaunch) {
  constexpr int kBlocks = 7;
  const std::vector<float> in = Numbers(kBlocks * kThreads);
  float *device_in = nullptr, *device_out = nullptr;
  ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&device_in), in.size() * sizeof(float)), cudaSuccess);
  ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&device_out), kBlocks * sizeof(float)), cudaSuccess);
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(device_in, in.data(), in.size() * sizeof(float), cudaMemcpyHostToDevice, stream),
            cudaSuccess);
  ASSERT_EQ(LaunchBlockSum(device_in, device_out, kBlocks, stream), cudaSuccess);
  float out[kBlocks] = {};
  ASSERT_EQ(cudaMemcpyAsync(out, device_out, sizeof out, cudaMemcpyDeviceToHost, stream), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  for (int block = 0; block < kBlocks; ++block) {
    float sum = 0;
    for (int i = 0; i < kThreads; ++i) sum += in[block * kThreads + i];
    EXPECT_EQ(out[block], sum);
  }
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  EXPECT_EQ(cudaFree(device_in), cudaSuccess);
  EXPECT_EQ(cudaFree(device_out), cudaSuccess);
}

// TSan ends a process that raced with 66, at once or at its end.
#if defined(HOST_CUDA_TSAN)
void EndAfter(const std::string& result) {
  std::fprintf(stderr, "result: %s\n", result.c_str());
  std::exit(0);
}
TEST(Planted, RacesAreReported) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(EndAfter(BlockSum(kNone)), ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(EndAfter(HandOver(kNone)), ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(EndAfter(Tiles(kNone)), ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(EndAfter(BlockSum(kNoBarrier)), ::testing::ExitedWithCode(66), "data race.*planted.cu:[0-9]+");
  EXPECT_EXIT(EndAfter(Tiles(kNoBarrierAfterRead)), ::testing::ExitedWithCode(66), "data race.*planted.cu:[0-9]+");
  EXPECT_EXIT(EndAfter(HandOver(kNoFence)), ::testing::ExitedWithCode(66), "data race.*planted.cu:[0-9]+");
}
#endif

}  // namespace
