// Runs a translated kernel on the host's own memory, without the runtime.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "tests/host_cuda/engine/grid.h"

namespace host_cuda::testing {

// `args` have the types of the kernel's parameters; `name` is mangled, or of an extern "C" kernel.
template <class... Args>
std::string RunByName(const char* name, uint32_t blocks, uint32_t threads, Args... args) {
  const Kernel* kernel = FindKernel(name);
  if (kernel == nullptr) return "no such kernel";
  if (kernel->params.size() != sizeof...(args)) return "other parameters";
  std::vector<unsigned char> params(kernel->param_bytes);
  size_t i = 0;
  ((std::memcpy(params.data() + kernel->params[i].offset, &args, sizeof args), ++i), ...);
  return RunGrid(*kernel, Launch{{blocks, 1, 1}, {threads, 1, 1}, 0}, params.data());
}

}  // namespace host_cuda::testing
