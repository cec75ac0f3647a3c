#include "tests/host_cuda/runtime/testing/fixture.h"

extern "C" {
unsigned __cudaPushCallConfiguration(dim3, dim3, size_t, cudaStream_t);
cudaError_t __cudaPopCallConfiguration(dim3*, dim3*, size_t*, void*);
cudaError_t __cudaGetKernel(cudaKernel_t*, const void*);
cudaError_t __cudaLaunchKernel(cudaKernel_t, dim3, dim3, void**, size_t, cudaStream_t);
}

namespace host_cuda {
namespace {

class LaunchTest : public HostCudaTest {
 protected:
  void SetUp() override {
    HostCudaTest::SetUp();
    p_ = Device(1);
    cudaMemset(p_, 0, 4);
  }
  int* p_ = nullptr;
};

TEST_F(LaunchTest, ArgumentsAreTakenAtTheLaunch) {
  int times = 1, plus = 5;
  void* args[] = {&p_, &times, &plus};
  ASSERT_EQ(cudaLaunchKernel(StepKernel::Host(), dim3(1), dim3(1), args, 0, nullptr), cudaSuccess);
  plus = 100;
  EXPECT_EQ(Value(p_), 5);
}

// What the stub that nvcc writes for <<<...>>> does.
TEST_F(LaunchTest, TheStubsOfNvcc) {
  cudaStream_t s = Stream();
  cudaStreamSynchronize(nullptr);
  ASSERT_EQ(__cudaPushCallConfiguration(dim3(2), dim3(64), 16, s), 0u);
  cudaKernel_t kernel = nullptr;
  ASSERT_EQ(__cudaGetKernel(&kernel, StepKernel::Host()), cudaSuccess);
  dim3 grid, block;
  size_t shared = 0;
  cudaStream_t stream = nullptr;
  ASSERT_EQ(__cudaPopCallConfiguration(&grid, &block, &shared, &stream), cudaSuccess);
  EXPECT_EQ(grid.x, 2u);
  EXPECT_EQ(block.x, 64u);
  EXPECT_EQ(shared, 16u);
  EXPECT_EQ(stream, s);
  EXPECT_EQ(__cudaPopCallConfiguration(&grid, &block, &shared, &stream), cudaErrorMissingConfiguration);
  int times = 1, plus = 6;
  void* args[] = {&p_, &times, &plus};
  ASSERT_EQ(__cudaLaunchKernel(kernel, grid, block, args, shared, stream), cudaSuccess);
  EXPECT_EQ(Value(p_), 6);
}

TEST_F(LaunchTest, LimitsOfALaunch) {
  EXPECT_EQ(StepKernel::Launch(p_, 1, 1, nullptr, dim3(0)), cudaErrorInvalidConfiguration);
  EXPECT_EQ(StepKernel::Launch(p_, 1, 1, nullptr, dim3(1025)), cudaErrorInvalidConfiguration);
  EXPECT_EQ(StepKernel::Launch(p_, 1, 1, nullptr, dim3(257)), cudaErrorInvalidValue);  // more than it was compiled for
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidValue);
  EXPECT_EQ(StepKernel::Launch(p_, 1, 1, nullptr, dim3(32), 48 << 10), cudaErrorInvalidValue);
  EXPECT_THAT(TakeReports(), testing::Contains(testing::HasSubstr("bytes of dynamic shared memory")));
  cudaStream_t none = reinterpret_cast<cudaStream_t>(0x1234);
  EXPECT_EQ(StepKernel::Launch(p_, 1, 1, none), cudaErrorInvalidResourceHandle);
  int unknown = 0;
  EXPECT_EQ(cudaLaunchKernel(&unknown, dim3(1), dim3(1), nullptr, 0, nullptr), cudaErrorInvalidDeviceFunction);
}

TEST_F(LaunchTest, AttributesOfFunctions) {
  const void* host = StepKernel::Host();
  EXPECT_EQ(cudaFuncSetAttribute(host, cudaFuncAttributeMaxDynamicSharedMemorySize, 163 << 10), cudaErrorInvalidValue);
  ASSERT_EQ(cudaFuncSetAttribute(host, cudaFuncAttributeMaxDynamicSharedMemorySize, 100 << 10), cudaSuccess);
  EXPECT_EQ(StepKernel::Launch(p_, 1, 1, nullptr, dim3(32), 100 << 10), cudaSuccess);
  cudaFuncAttributes attributes;
  ASSERT_EQ(cudaFuncGetAttributes(&attributes, host), cudaSuccess);
  EXPECT_EQ(attributes.maxDynamicSharedSizeBytes, 100 << 10);
  EXPECT_EQ(attributes.sharedSizeBytes, 1024u);
  EXPECT_EQ(attributes.maxThreadsPerBlock, 256);
  int blocks = 0;
  ASSERT_EQ(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, host, 256, 0), cudaSuccess);
  EXPECT_EQ(blocks, 8);  // 2048 threads
  ASSERT_EQ(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, host, 256, 50 << 10), cudaSuccess);
  EXPECT_EQ(blocks, 3);  // 164 KiB of shared memory, 52 a block
  EXPECT_EQ(cudaFuncSetAttribute(host, cudaFuncAttributeNonPortableClusterSizeAllowed, 1), cudaErrorNotSupported);
  Fresh({});  // forgotten with everything else
  ASSERT_EQ(cudaFuncGetAttributes(&attributes, host), cudaSuccess);
  EXPECT_EQ(attributes.maxDynamicSharedSizeBytes, 47 << 10);
}

TEST_F(LaunchTest, AttributesOfFunctionsHoldOnOneDevice) {
  Fresh({{"HOST_CUDA_DEVICES", "2"}});
  const void* host = StepKernel::Host();
  ASSERT_EQ(cudaFuncSetAttribute(host, cudaFuncAttributeMaxDynamicSharedMemorySize, 100 << 10), cudaSuccess);
  int* p = Device(1);
  EXPECT_EQ(StepKernel::Launch(p, 1, 1, nullptr, dim3(32), 100 << 10), cudaSuccess);
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  EXPECT_EQ(StepKernel::Launch(p, 1, 1, nullptr, dim3(32), 100 << 10), cudaErrorInvalidValue);
  EXPECT_THAT(TakeReports(), testing::Contains(testing::HasSubstr("are allowed on device 1")));
}

TEST_F(LaunchTest, AttributesOfLaunches) {
  cudaLaunchAttribute attribute = {};
  cudaLaunchConfig_t config = {};
  config.gridDim = config.blockDim = dim3(1);
  config.attrs = &attribute;
  config.numAttrs = 1;
  int times = 1, plus = 1;
  void* args[] = {&p_, &times, &plus};
  const auto launch = [&] { return cudaLaunchKernelExC(&config, StepKernel::Host(), args); };
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  EXPECT_EQ(launch(), cudaSuccess);
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {1, 1, 1};
  EXPECT_EQ(launch(), cudaSuccess);
  attribute.val.clusterDim = {2, 1, 1};
  EXPECT_EQ(launch(), cudaErrorNotSupported);
  EXPECT_THAT(TakeReports(), testing::Contains(testing::HasSubstr("launch attribute 4 is not here: cluster")));
  attribute.id = cudaLaunchAttributeCooperative;
  attribute.val.cooperative = 0;
  EXPECT_EQ(launch(), cudaSuccess);
  attribute.val.cooperative = 1;
  EXPECT_EQ(launch(), cudaErrorNotSupported);
  EXPECT_THAT(TakeReports(), testing::Contains(testing::HasSubstr("launch attribute 2 is not here: cooperative")));
  EXPECT_EQ(Value(p_), 3);
}

}  // namespace
}  // namespace host_cuda
