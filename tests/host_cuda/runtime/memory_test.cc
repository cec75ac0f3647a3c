#include <cmath>
#include <cstring>

#include "tests/host_cuda/runtime/testing/fixture.h"

namespace host_cuda {
namespace {

using testing::Contains;
using testing::HasSubstr;

class MemoryTest : public HostCudaTest {};

TEST_F(MemoryTest, FreshMemoryIsNotANumber) {
  float* p = Device<float>(10);
  float seen[10];
  ASSERT_EQ(cudaMemcpy(seen, p, sizeof seen, cudaMemcpyDeviceToHost), cudaSuccess);
  for (float x : seen) EXPECT_TRUE(std::isnan(x));
}

TEST_F(MemoryTest, TheLimitHoldsAndWhatIsFreedComesBack) {
  Fresh({{"HOST_CUDA_MEMORY", "1048576"}});
  size_t free_bytes = 0, total = 0;
  ASSERT_EQ(cudaMemGetInfo(&free_bytes, &total), cudaSuccess);
  EXPECT_EQ(total, 1048576u);
  EXPECT_EQ(free_bytes, total);
  void *a = nullptr, *b = nullptr;
  ASSERT_EQ(cudaMalloc(&a, 800 << 10), cudaSuccess);
  EXPECT_EQ(cudaMalloc(&b, 300 << 10), cudaErrorMemoryAllocation);
  EXPECT_EQ(b, nullptr);
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_EQ(cudaFree(a), cudaSuccess);
  EXPECT_EQ(cudaMalloc(&b, 300 << 10), cudaSuccess);
  EXPECT_EQ(cudaFree(static_cast<char*>(b) + 1), cudaErrorInvalidValue);
}

TEST_F(MemoryTest, StreamOrderedMemoryComesBackInOrderOfItsStream) {
  for (int seed = 0; seed < 20; ++seed) {
    Fresh({{"HOST_CUDA_MEMORY", "1048576"}, {"HOST_CUDA_SEED", std::to_string(seed)}});
    cudaStream_t s = Stream();
    int* result = Device(1);
    cudaMemsetAsync(result, 0, 4, s);
    for (int i = 1; i <= 8; ++i) {  // far more than there is at once
      void* p = nullptr;
      ASSERT_EQ(cudaMallocAsync(&p, 600 << 10, s), cudaSuccess) << "seed " << seed << " round " << i;
      cudaMemsetAsync(p, 0, 4, s);
      StepKernel::Launch(static_cast<int*>(p), 1, i, s);
      cudaMemcpyAsync(result, p, 4, cudaMemcpyDeviceToDevice, s);
      ASSERT_EQ(cudaFreeAsync(p, s), cudaSuccess);
    }
    EXPECT_EQ(Value(result), 8);
    EXPECT_THAT(TakeReports(), testing::IsEmpty());
  }
}

TEST_F(MemoryTest, UseAfterFreeAsyncIsNamed) {
  cudaStream_t s = Stream();
  void* p = nullptr;
  ASSERT_EQ(cudaMallocAsync(&p, 4096, s), cudaSuccess);
  ASSERT_EQ(cudaMemsetAsync(p, 0, 4096, s), cudaSuccess);
  ASSERT_EQ(cudaFreeAsync(p, s), cudaSuccess);
  ASSERT_EQ(cudaMemsetAsync(p, 1, 4096, s), cudaSuccess);  // the bug
  EXPECT_EQ(cudaStreamSynchronize(s), cudaErrorIllegalAddress);
  EXPECT_THAT(TakeReports(),
              Contains(HasSubstr("cudaMemsetAsync writes where it must not: it is device memory #1 (4096 bytes on "
                                 "device 0), freed by cudaFreeAsync")));
}

TEST_F(MemoryTest, UseBySomeOtherStreamAfterFreeAsyncIsFoundInMostSeeds) {
  int found = 0;
  for (int seed = 0; seed < 24; ++seed) {
    Fresh({{"HOST_CUDA_SEED", std::to_string(seed)}});
    cudaStream_t s = Stream(), other = Stream();
    void* p = nullptr;
    cudaMallocAsync(&p, 4096, s);
    cudaStreamSynchronize(s);
    cudaMemsetAsync(p, 0, 4096, other);
    cudaMemsetAsync(p, 1, 4096, other);
    cudaFreeAsync(p, s);  // nothing says that it comes after the other stream's use
    found += cudaDeviceSynchronize() == cudaErrorIllegalAddress;
  }
  std::printf("cudaFreeAsync that does not wait for another stream: found in %d of 24 seeds\n", found);
  EXPECT_GT(found, 12);
}

TEST_F(MemoryTest, FreeingTwiceIsNamed) {
  cudaStream_t s = Stream();
  void* p = nullptr;
  ASSERT_EQ(cudaMallocAsync(&p, 64, s), cudaSuccess);
  EXPECT_EQ(cudaFreeAsync(p, s), cudaSuccess);
  EXPECT_EQ(cudaFreeAsync(p, s), cudaErrorInvalidValue);
  EXPECT_THAT(TakeReports(), Contains(HasSubstr("cudaFreeAsync of memory that is gone")));
  int* q = Device(1);
  EXPECT_EQ(cudaFree(q), cudaSuccess);
  EXPECT_EQ(cudaFree(q), cudaErrorInvalidValue);
  EXPECT_THAT(TakeReports(), Contains(HasSubstr("cudaFree of memory that is gone")));
}

#if !defined(__SANITIZE_ADDRESS__)
TEST_F(MemoryTest, AWritePastTheEndIsFoundWhenTheBlockIsFreed) {
  int* p = Device(3);
  p[3] = 0;
  EXPECT_EQ(cudaFree(p), cudaErrorIllegalAddress);
  EXPECT_THAT(TakeReports(), Contains(HasSubstr("something wrote past the end of device memory #1 (12 bytes")));
}
#endif

TEST_F(MemoryTest, PointersSayWhatTheyAre) {
  int* p = Device(4);
  int* h = Pinned(4);
  int here = 0;
  cudaPointerAttributes about;
  ASSERT_EQ(cudaPointerGetAttributes(&about, p + 1), cudaSuccess);
  EXPECT_EQ(about.type, cudaMemoryTypeDevice);
  ASSERT_EQ(cudaPointerGetAttributes(&about, h), cudaSuccess);
  EXPECT_EQ(about.type, cudaMemoryTypeHost);
  ASSERT_EQ(cudaPointerGetAttributes(&about, &here), cudaSuccess);
  EXPECT_EQ(about.type, cudaMemoryTypeUnregistered);
  ASSERT_EQ(cudaHostRegister(&here, sizeof here, 0), cudaSuccess);
  ASSERT_EQ(cudaPointerGetAttributes(&about, &here), cudaSuccess);
  EXPECT_EQ(about.type, cudaMemoryTypeHost);
  EXPECT_EQ(cudaHostUnregister(&here), cudaSuccess);
  EXPECT_EQ(cudaHostUnregister(&here), cudaErrorHostMemoryNotRegistered);
}

TEST_F(MemoryTest, RegisteredRangesMayNotOverlap) {
  int here[4] = {};
  ASSERT_EQ(cudaHostRegister(here + 1, 8, cudaHostRegisterPortable), cudaSuccess);
  EXPECT_EQ(cudaHostRegister(here, 8, 0), cudaErrorHostMemoryAlreadyRegistered);
  EXPECT_EQ(cudaHostRegister(here + 2, 8, 0), cudaErrorHostMemoryAlreadyRegistered);
  ASSERT_EQ(cudaHostRegister(here + 3, 4, 0), cudaSuccess);
  unsigned flags = 99;
  ASSERT_EQ(cudaHostGetFlags(&flags, here + 1), cudaSuccess);
  EXPECT_EQ(flags, unsigned{cudaHostRegisterPortable});
  EXPECT_EQ(cudaHostGetFlags(&flags, here), cudaErrorInvalidValue);
  EXPECT_EQ(cudaHostRegister(here, 4, cudaHostRegisterIoMemory), cudaErrorNotSupported);
  EXPECT_EQ(cudaHostUnregister(here + 1), cudaSuccess);
  EXPECT_EQ(cudaHostUnregister(here + 3), cudaSuccess);
}

TEST_F(MemoryTest, ThePoolOfADevice) {
  cudaMemPool_t pool = nullptr, same = nullptr;
  ASSERT_EQ(cudaDeviceGetDefaultMemPool(&pool, 0), cudaSuccess);
  ASSERT_EQ(cudaDeviceGetMemPool(&same, 0), cudaSuccess);
  EXPECT_EQ(pool, same);
  EXPECT_EQ(cudaDeviceGetDefaultMemPool(&same, 1), cudaErrorInvalidDevice);
  uint64_t number = ~uint64_t{0};
  ASSERT_EQ(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &number), cudaSuccess);
  number = 0;
  ASSERT_EQ(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &number), cudaSuccess);
  EXPECT_EQ(number, ~uint64_t{0});
  int on = 0;
  ASSERT_EQ(cudaMemPoolGetAttribute(pool, cudaMemPoolReuseAllowOpportunistic, &on), cudaSuccess);
  EXPECT_EQ(on, 1);
  on = 0;
  ASSERT_EQ(cudaMemPoolSetAttribute(pool, cudaMemPoolReuseAllowOpportunistic, &on), cudaSuccess);
  EXPECT_EQ(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &number), cudaErrorInvalidValue);

  const auto used = [&](cudaMemPoolAttr attribute) {
    uint64_t value = 77;
    EXPECT_EQ(cudaMemPoolGetAttribute(pool, attribute, &value), cudaSuccess);
    return value;
  };
  cudaStream_t s = Stream();
  void *a = nullptr, *b = nullptr;
  ASSERT_EQ(cudaMallocAsync(&a, 1024, s), cudaSuccess);
  ASSERT_EQ(cudaMallocFromPoolAsync(&b, 512, pool, s), cudaSuccess);
  EXPECT_EQ(used(cudaMemPoolAttrUsedMemCurrent), 1536u);
  cudaFreeAsync(a, s);
  cudaStreamSynchronize(s);
  EXPECT_EQ(used(cudaMemPoolAttrUsedMemCurrent), 512u);
  EXPECT_EQ(used(cudaMemPoolAttrUsedMemHigh), 1536u);
  number = 0;
  ASSERT_EQ(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrUsedMemHigh, &number), cudaSuccess);
  EXPECT_EQ(used(cudaMemPoolAttrUsedMemHigh), 512u);
  EXPECT_EQ(cudaMemPoolTrimTo(pool, 0), cudaSuccess);
  size_t free_bytes = 0, total = 0;
  ASSERT_EQ(cudaMemGetInfo(&free_bytes, &total), cudaSuccess);
  EXPECT_EQ(total - free_bytes, 512u);  // nothing is kept for later
  EXPECT_EQ(cudaMemPoolTrimTo(nullptr, 0), cudaErrorInvalidValue);
}

#if defined(__SANITIZE_ADDRESS__)
constexpr char kFreedByCudaFree[] = "use-after-poison";
#else
constexpr char kFreedByCudaFree[] = "which is device memory #1 \\(4 bytes on device 0\\), freed by cudaFree";
#endif

TEST(MemoryDeathTest, AKernelThatUsesFreedMemoryIsNamed) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        int* p = nullptr;
        cudaMalloc(reinterpret_cast<void**>(&p), 4);
        cudaFree(p);
        StepKernel::Launch(p, 1, 1, nullptr);
        cudaDeviceSynchronize();
      },
      kFreedByCudaFree);
}

TEST(MemoryDeathTest, ByDefaultADeviceErrorEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        cudaStream_t s = nullptr;
        void* p = nullptr;
        cudaMallocAsync(&p, 4096, s);
        cudaFreeAsync(p, s);
        cudaMemsetAsync(p, 1, 4096, s);
        cudaStreamSynchronize(s);
      },
      "freed by cudaFreeAsync");
}

}  // namespace
}  // namespace host_cuda
