// A test that starts with a fresh fake runtime, set by HOST_CUDA_* variables. Errors of the device are reported, not
// the end.
#pragma once

#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "tests/host_cuda/engine/grid.h"
#include "tests/host_cuda/runtime/control.h"
#include "tests/host_cuda/runtime/report.h"

namespace host_cuda {

class HostCudaTest : public ::testing::Test {
 protected:
  void SetUp() override { Fresh({}); }

  void TearDown() override {
    for (const auto& [name, value] : set_) unsetenv(name.c_str());
    set_.clear();
    Restart();
  }

  void Fresh(std::map<std::string, std::string> environment) {
    environment.emplace("HOST_CUDA_ON_ERROR", "report");
    // Devices start when the host waits or asks, not when the machine made the test slow: the same seed, the same order.
    environment.emplace("HOST_CUDA_LATE_US", "10000000");
    for (const auto& [name, value] : set_) unsetenv(name.c_str());
    for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
    set_ = environment;
    Restart();
    TakeReports();
  }

  cudaStream_t Stream(unsigned flags = cudaStreamNonBlocking) {
    cudaStream_t stream = nullptr;
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream, flags), cudaSuccess);
    return stream;
  }

  cudaEvent_t Event(unsigned flags = cudaEventDisableTiming) {
    cudaEvent_t event = nullptr;
    EXPECT_EQ(cudaEventCreateWithFlags(&event, flags), cudaSuccess);
    return event;
  }

  template <class T = int>
  T* Device(size_t count) {
    void* p = nullptr;
    EXPECT_EQ(cudaMalloc(&p, count * sizeof(T)), cudaSuccess);
    return static_cast<T*>(p);
  }

  template <class T = int>
  T* Pinned(size_t count) {
    void* p = nullptr;
    EXPECT_EQ(cudaMallocHost(&p, count * sizeof(T)), cudaSuccess);
    return static_cast<T*>(p);
  }

  // The value of one int in device memory, after everything is done.
  static int Value(const int* device) {
    int value = 0;
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(&value, device, sizeof value, cudaMemcpyDeviceToHost), cudaSuccess);
    return value;
  }

 private:
  std::map<std::string, std::string> set_;
};

// p[0] = p[0] * times + plus, as a kernel: what doesn't commute shows the order.
struct StepKernel {
  static void Body(const unsigned char* params) {
    int* p;
    int times, plus;
    __builtin_memcpy(&p, params, 8);
    __builtin_memcpy(&times, params + 8, 4);
    __builtin_memcpy(&plus, params + 12, 4);
    *p = *p * times + plus;
  }
  static void Stub() {}
  static const void* Host() {
    static const bool once = [] {
      Kernel kernel;
      kernel.name = "Step";
      kernel.body = Body;
      kernel.param_bytes = 16;
      kernel.params = {{0, 8}, {8, 4}, {12, 4}};
      kernel.max_threads = 256;
      kernel.static_shared_bytes = 1024;
      RegisterKernel(kernel);
      BindKernel(reinterpret_cast<const void*>(&Stub), "Step");
      return true;
    }();
    (void)once;
    return reinterpret_cast<const void*>(&Stub);
  }
  static cudaError_t Launch(int* p, int times, int plus, cudaStream_t stream, dim3 block = dim3(32),
                            size_t shared = 0) {
    void* args[] = {&p, &times, &plus};
    return cudaLaunchKernel(Host(), dim3(1), block, args, shared, stream);
  }
};

}  // namespace host_cuda
