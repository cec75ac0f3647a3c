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

// Made by the translator, registered before main.
struct Kernel {
  struct Param {
    size_t offset = 0, bytes = 0;  // in the parameter buffer, as the PTX lays them out
  };
  std::string name;  // mangled, as the host object registers it
  void (*body)(const unsigned char* params) = nullptr;
  size_t param_bytes = 0;
  std::vector<Param> params;
  size_t static_shared_bytes = 0;
  int max_threads = 1024;  // .maxntid, or the device's limit
};

void RegisterKernel(Kernel kernel);
const Kernel* FindKernel(const std::string& name);  // nullptr: not translated

struct Launch {
  Dim3 grid, block;
  size_t dynamic_shared_bytes = 0;
};

// Empty: it ran. Otherwise what was wrong, with kernel, block, thread and source line: the caller makes it a sticky launch
// failure or ends the process, as HOST_CUDA_ON_ERROR says ("abort", the default, or "report").
std::string RunGrid(const Kernel& kernel, const Launch& launch, const unsigned char* params);

}  // namespace host_cuda
