#include "tests/host_cuda/runtime/device_work.h"
#include "tests/host_cuda/runtime/testing/fixture.h"

namespace host_cuda {
namespace {

using testing::Contains;
using testing::HasSubstr;

class ErrorTest : public HostCudaTest {};

TEST_F(ErrorTest, NamesAndTexts) {
  EXPECT_STREQ(cudaGetErrorName(cudaErrorIllegalAddress), "cudaErrorIllegalAddress");
  EXPECT_STREQ(cudaGetErrorString(cudaErrorIllegalAddress), "an illegal memory access was encountered");
  EXPECT_STREQ(cudaGetErrorString(cudaErrorNoDevice), "no CUDA-capable device is detected");
  EXPECT_STREQ(cudaGetErrorName(static_cast<cudaError_t>(12345)), "unrecognized error code");
}

TEST_F(ErrorTest, NoDevice) {
  Fresh({{"HOST_CUDA_DEVICES", "0"}});
  int count = 7;
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaErrorNoDevice);
  EXPECT_EQ(count, 0);
  void* p = nullptr;
  EXPECT_EQ(cudaMalloc(&p, 4), cudaErrorNoDevice);
}

TEST_F(ErrorTest, TheNthCallFailsOnPurpose) {
  Fresh({{"HOST_CUDA_FAIL", "cudaMalloc:3=cudaErrorMemoryAllocation"}});
  void* p = nullptr;
  EXPECT_EQ(cudaMalloc(&p, 4), cudaSuccess);
  EXPECT_EQ(cudaMalloc(&p, 4), cudaSuccess);
  EXPECT_EQ(cudaMalloc(&p, 4), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaPeekAtLastError(), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaMalloc(&p, 4), cudaSuccess);  // this one does not stick
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST_F(ErrorTest, AFailedLaunchComesLateAndSticks) {
  Fresh({{"HOST_CUDA_FAIL", "launch:2=cudaErrorLaunchFailure"}});
  cudaStream_t s = Stream();
  int* p = Device(1);
  cudaMemsetAsync(p, 0, 4, s);
  EXPECT_EQ(StepKernel::Launch(p, 1, 1, s), cudaSuccess);
  EXPECT_EQ(StepKernel::Launch(p, 1, 1, s), cudaSuccess);  // the one that fails, on the device
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(s), cudaErrorLaunchFailure);
  EXPECT_EQ(cudaGetLastError(), cudaErrorLaunchFailure);
  void* q = nullptr;
  EXPECT_EQ(cudaMalloc(&q, 4), cudaErrorLaunchFailure);
  EXPECT_EQ(StepKernel::Launch(p, 1, 1, s), cudaErrorLaunchFailure);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorLaunchFailure);
  EXPECT_THAT(TakeReports(), Contains(HasSubstr("kernel Step fails on purpose")));
  EXPECT_EQ(cudaDeviceReset(), cudaSuccess);
  EXPECT_EQ(cudaMalloc(&q, 4), cudaSuccess);
}

TEST_F(ErrorTest, AFailedCopy) {
  Fresh({{"HOST_CUDA_FAIL", "copy:1=cudaErrorECCUncorrectable"}});
  int* p = Device(1);
  int x = 0;
  EXPECT_EQ(cudaMemcpy(p, &x, 4, cudaMemcpyHostToDevice), cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorECCUncorrectable);
}

TEST_F(ErrorTest, AnErrorSticksToItsDeviceAlone) {
  Fresh({{"HOST_CUDA_DEVICES", "2"}, {"HOST_CUDA_FAIL", "launch:1=cudaErrorIllegalAddress"}});
  int* p = Device(1);
  StepKernel::Launch(p, 1, 1, nullptr);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaSetDevice(1), cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(cudaSetDevice(0), cudaErrorIllegalAddress);
}

TEST_F(ErrorTest, WhatIsStuckLetsNobodyWaitForever) {
  Fresh({{"HOST_CUDA_FAIL", "launch:1=cudaErrorLaunchFailure"}});
  cudaStream_t s = Stream();
  int* p = Device(1);
  DeviceWork never;
  never.name = "never";
  never.step = [] { return false; };
  StepKernel::Launch(p, 1, 1, s);
  Enqueue(s, never);
  EXPECT_EQ(cudaStreamSynchronize(s), cudaErrorLaunchFailure);
}

}  // namespace
}  // namespace host_cuda
