// Runs one grid of a translated kernel on the calling thread, to its end: one fiber a CUDA thread, one block at a time.
// What the runtime (../runtime) calls when a launch reaches the head of its stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace host_cuda {

struct Dim3 {
  uint32_t x = 1, y = 1, z = 1;
};

// A static __shared__ variable, where the translator put it: at least SharedMemory::kRedzone from the next.
struct SharedVariable {
  size_t offset = 0, bytes = 0;
  std::string name;
};

// Made by the translator, registered before main.
struct Kernel {
  struct Param {
    size_t offset = 0, bytes = 0;  // in the parameter buffer, as the PTX lays them out
  };
  std::string name;  // mangled, as the host object registers it
  void (*body)(const unsigned char* params) = nullptr;
  size_t param_bytes = 0;
  std::vector<Param> params;
  size_t static_shared_bytes = 0;  // as the device counts them, without redzones
  std::vector<SharedVariable> shared;
  size_t local_bytes = 0;
  uint32_t max_threads = 1024;  // .maxntid, or the device's limit
};

void RegisterKernel(Kernel kernel);
const Kernel* FindKernel(const std::string& name);  // nullptr: not translated

// A __device__ or __constant__ variable of a translated file. There is one of it, whatever the number of devices.
struct Variable {
  std::string name;  // mangled
  void* address = nullptr;
  size_t bytes = 0;
  bool constant = false;  // __constant__
};

void RegisterVariable(Variable variable);
const Variable* FindVariable(const std::string& name);
bool IsConstant(const void* address);  // in a __constant__ variable

struct Launch {
  Dim3 grid, block;
  size_t dynamic_shared_bytes = 0;
};

// Empty: the device can run it. Otherwise which limit it exceeds; the runtime's cudaErrorInvalidConfiguration.
std::string CheckLaunch(const Kernel& kernel, const Launch& launch);

// Empty: it ran. Otherwise what was wrong, with kernel, block, thread and source line: the caller makes it a sticky
// launch failure or ends the process, as HOST_CUDA_ON_ERROR says ("abort", the default, or "report"). Several OS
// threads may run grids at once, each with its own shared memory.
std::string RunGrid(const Kernel& kernel, const Launch& launch, const unsigned char* params);

// Whether what RunGrid returned is a failed assert() of the kernel: cudaErrorAssert.
inline bool IsAssertion(const std::string& error) {
  return error.find(": assertion `") != std::string::npos;
}

}  // namespace host_cuda
