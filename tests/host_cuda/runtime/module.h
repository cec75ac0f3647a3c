// Kernels and variables as the host objects that nvcc makes register them (the private interface of CUDA 13.0's
// cudart).
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <map>
#include <string>

#include "tests/host_cuda/engine/grid.h"

namespace host_cuda::rt {

// A __global__ function that the host can name, by the address of its stub or as a cudaKernel_t, which is this object.
struct Function {
  const void* host = nullptr;
  std::string name;  // mangled
  struct Attributes {
    int dynamic_limit = -1;  // cudaFuncAttributeMaxDynamicSharedMemorySize; -1: what needs no opt-in
    int carveout = -1;
  };
  // By device: what was set for one holds there alone, as a function belongs to a context. The runtime's mutex guards
  // it.
  std::map<int, Attributes> on;
};

// nullptr: no such function. Not what the engine has: that is looked up by name at a launch.
Function* FindFunction(const void* stub_or_kernel);
void AddFunction(const void* host, const std::string& name);
void ForgetAttributes();  // of all functions

struct Symbol {
  void* address = nullptr;
  size_t bytes = 0;
};

// A __device__ or __constant__ variable, by the address of its shadow in the host.
Symbol FindSymbol(const void* shadow);
// Whether p is in such a variable.
bool IsVariable(const void* p);

}  // namespace host_cuda::rt
