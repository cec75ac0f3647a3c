#include <vector>

#include "tests/host_cuda/engine/grid.h"
#include "tests/host_cuda/runtime/testing/fixture.h"

extern "C" void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int);

namespace host_cuda {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;

class CopyTest : public HostCudaTest {};

TEST_F(CopyTest, PageableMemoryIsReadInTheCallPinnedMemoryLate) {
  cudaStream_t s = Stream();
  int *p = Device(1), *q = Device(1);
  int pageable = 1;
  int* pinned = Pinned(1);
  *pinned = 1;
  cudaMemcpyAsync(p, &pageable, 4, cudaMemcpyHostToDevice, s);
  cudaMemcpyAsync(q, pinned, 4, cudaMemcpyHostToDevice, s);
  pageable = 2;
  *pinned = 2;  // the bug that this shows: the buffer is used again too early
  EXPECT_EQ(Value(p), 1);
  EXPECT_EQ(Value(q), 2);
  EXPECT_THAT(TakeReports(), Contains(HasSubstr("cudaMemcpyAsync of 4 bytes from pinned memory #3 (4 bytes), which the "
                                                "host changed after the call, before the copy")));
}

TEST_F(CopyTest, RegisteredMemoryThatIsChangedTooEarlyIsNamedAsWell) {
  int* p = Device(2);
  int here[2] = {1, 2};
  ASSERT_EQ(cudaHostRegister(here, sizeof here, 0), cudaSuccess);
  cudaMemcpyAsync(p, here, 4, cudaMemcpyHostToDevice, Stream());
  here[1] = 7;  // not of the copy
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_THAT(TakeReports(), IsEmpty());
  cudaMemcpyAsync(p, here, 4, cudaMemcpyHostToDevice, Stream());
  here[0] = 7;
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_THAT(TakeReports(), Contains(HasSubstr("from registered memory #2 (8 bytes), which the host changed")));
  cudaHostUnregister(here);
}

TEST_F(CopyTest, WhatTheDeviceOrACallbackWritesInOrderIsNoFinding) {
  cudaStream_t s = Stream();
  int *p = Device(1), *pinned = Pinned(1);
  cudaMemsetAsync(p, 0, 4, s);
  cudaMemcpyAsync(pinned, p, 4, cudaMemcpyDeviceToHost, s);
  cudaMemcpyAsync(p, pinned, 4, cudaMemcpyHostToDevice, s);  // 0xff.. at the call
  EXPECT_EQ(Value(p), 0);
  cudaLaunchHostFunc(
      s, [](void* data) { *static_cast<int*>(data) = 5; }, pinned);
  cudaMemcpyAsync(p, pinned, 4, cudaMemcpyHostToDevice, s);
  EXPECT_EQ(Value(p), 5);
  EXPECT_THAT(TakeReports(), IsEmpty());
  Fresh({{"HOST_CUDA_PINNED", "ignore"}});
  p = Device(1);
  pinned = Pinned(1);
  cudaMemcpyAsync(p, pinned, 4, cudaMemcpyHostToDevice, Stream());
  *pinned = 6;
  EXPECT_EQ(Value(p), 6);
  EXPECT_THAT(TakeReports(), IsEmpty());
}

TEST_F(CopyTest, ACopyToPageableMemoryHasComeWhenTheCallReturns) {
  cudaStream_t s = Stream();
  int* p = Device(1);
  cudaMemsetAsync(p, 0, 4, s);
  StepKernel::Launch(p, 1, 3, s);
  int seen = -1;
  EXPECT_EQ(cudaMemcpyAsync(&seen, p, 4, cudaMemcpyDeviceToHost, s), cudaSuccess);
  EXPECT_EQ(seen, 3);
}

TEST_F(CopyTest, DeviceToDeviceAndMemsetReturnAtOnce) {
  int *p = Device(1), *q = Device(1);
  EXPECT_EQ(cudaMemset(p, 0, 4), cudaSuccess);
  EXPECT_EQ(cudaMemcpy(q, p, 4, cudaMemcpyDeviceToDevice), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(nullptr), cudaErrorNotReady);
  EXPECT_EQ(Value(q), 0);
}

TEST_F(CopyTest, WrongKindsAndSizesAreRefused) {
  int* p = Device(4);
  int* h = Pinned(4);
  int here[8];
  EXPECT_EQ(cudaMemcpy(here, p, 4, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(p, here, 4, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(p, p, 4, cudaMemcpyHostToHost), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(p, here, 20, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemset(p + 2, 0, 12), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemset(here, 0, 12), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(p, h, 16, cudaMemcpyHostToDevice), cudaSuccess);
  EXPECT_EQ(cudaMemcpy(p, here, 16, cudaMemcpyDefault), cudaSuccess);
}

TEST_F(CopyTest, VariablesOfTheDevice) {
  static int device_side[2] = {1, 2};
  static char shadow[8];
  RegisterVariable({"table", device_side, sizeof device_side});
  __cudaRegisterVar(nullptr, shadow, shadow, "table", 0, sizeof device_side, 1, 0);
  const int in = 5;
  ASSERT_EQ(cudaMemcpyToSymbol(shadow, &in, 4, 4, cudaMemcpyHostToDevice), cudaSuccess);
  int out = 0;
  ASSERT_EQ(cudaMemcpyFromSymbol(&out, shadow, 4, 4, cudaMemcpyDeviceToHost), cudaSuccess);
  EXPECT_EQ(out, 5);
  EXPECT_EQ(cudaMemcpyToSymbol(shadow, &in, 4, 8, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpyToSymbol(&in, &in, 4, 0, cudaMemcpyHostToDevice), cudaErrorInvalidSymbol);
}

}  // namespace
}  // namespace host_cuda
