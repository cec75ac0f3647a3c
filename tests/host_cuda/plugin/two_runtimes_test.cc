// A program that links the runtime and opens a fake that brings it again.
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <nccl.h>

namespace host_cuda {
namespace {

TEST(TwoRuntimesDeathTest, AreRefused) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        void* p = nullptr;
        cudaMalloc(&p, 4);
        void* nccl = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
        if (nccl == nullptr) std::abort();
        reinterpret_cast<decltype(&ncclMemAlloc)>(dlsym(nccl, "ncclMemAlloc"))(&p, 4);
      },
      "there are two test runtimes in this process");
}

}  // namespace
}  // namespace host_cuda
