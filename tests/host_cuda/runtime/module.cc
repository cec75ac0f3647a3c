#include "tests/host_cuda/runtime/module.h"

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "tests/host_cuda/engine/grid.h"
#include "tests/host_cuda/runtime/control.h"
#include "tests/host_cuda/runtime/report.h"

namespace host_cuda::rt {
namespace {

struct Shadow {
  std::string name;
  size_t bytes = 0;
};

// Filled by constructors of host objects, so made at first use. A lock of its own: launches look it up without the
// runtime's mutex.
struct Registry {
  std::mutex mutex;
  std::map<const void*, std::unique_ptr<Function>> functions;
  std::map<const void*, Function*> kernels;
  std::map<const void*, Shadow> shadows;
};

Registry& TheRegistry() {
  static Registry& registry = *new Registry;
  return registry;
}

}  // namespace

void AddFunction(const void* host, const std::string& name) {
  Registry& registry = TheRegistry();
  std::lock_guard<std::mutex> lock(registry.mutex);
  auto& function = registry.functions[host];
  if (!function) function = std::make_unique<Function>();
  function->host = host;
  function->name = name;  // after a plugin went, another one may have its addresses
  registry.kernels[function.get()] = function.get();
}

Function* FindFunction(const void* p) {
  Registry& registry = TheRegistry();
  std::lock_guard<std::mutex> lock(registry.mutex);
  if (auto stub = registry.functions.find(p); stub != registry.functions.end()) return stub->second.get();
  auto kernel = registry.kernels.find(p);
  return kernel == registry.kernels.end() ? nullptr : kernel->second;
}

void ForgetAttributes() {
  Registry& registry = TheRegistry();
  std::lock_guard<std::mutex> lock(registry.mutex);
  for (const auto& [host, function] : registry.functions) function->on.clear();
}

Symbol FindSymbol(const void* shadow) {
  Registry& registry = TheRegistry();
  std::lock_guard<std::mutex> lock(registry.mutex);
  auto found = registry.shadows.find(shadow);
  if (found == registry.shadows.end()) return {};
  const Variable* variable = FindVariable(found->second.name);
  if (variable == nullptr) {
    Report("the variable " + found->second.name + " was not translated");
    return {};
  }
  return {variable->address, variable->bytes};
}

bool IsVariable(const void* p) {
  Registry& registry = TheRegistry();
  std::lock_guard<std::mutex> lock(registry.mutex);
  for (const auto& [shadow, about] : registry.shadows) {
    const Variable* variable = FindVariable(about.name);
    if (variable == nullptr) continue;
    const char* begin = static_cast<const char*>(variable->address);
    if (p >= begin && p < begin + variable->bytes) return true;
  }
  return false;
}

}  // namespace host_cuda::rt

namespace host_cuda {

void BindKernel(const void* host, const char* name) {
  rt::AddFunction(host, name);
}

}  // namespace host_cuda

namespace {

// What <<<...>>> says, until the stub of the kernel takes it.
struct CallConfiguration {
  dim3 grid, block;
  size_t shared = 0;
  cudaStream_t stream = nullptr;
};
thread_local std::vector<CallConfiguration> configurations;

}  // namespace

extern "C" {

void** __cudaRegisterFatBinary(void*) {
  static void* handle = nullptr;
  return &handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
char __cudaInitModule(void**) {
  return 1;
}

void __cudaRegisterFunction(void**, const char* host, char*, const char* name, int, uint3*, uint3*, dim3*, dim3*,
                            int*) {
  host_cuda::rt::AddFunction(host, name);
}

void __cudaRegisterVar(void**, char* shadow, char*, const char* name, int, size_t bytes, int, int) {
  auto& registry = host_cuda::rt::TheRegistry();
  std::lock_guard<std::mutex> lock(registry.mutex);
  registry.shadows[shadow] = {name, bytes};
}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, cudaStream_t stream) {
  configurations.push_back({grid, block, shared, stream});
  return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
  if (configurations.empty()) return cudaErrorMissingConfiguration;
  const CallConfiguration top = configurations.back();
  configurations.pop_back();
  *grid = top.grid;
  *block = top.block;
  *shared = top.shared;
  *static_cast<cudaStream_t*>(stream) = top.stream;
  return cudaSuccess;
}

cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* host) {
  *kernel = reinterpret_cast<cudaKernel_t>(host_cuda::rt::FindFunction(host));
  return *kernel != nullptr ? cudaSuccess : cudaErrorInvalidDeviceFunction;
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** args, size_t shared,
                               cudaStream_t stream) {
  return cudaLaunchKernel(reinterpret_cast<const void*>(kernel), grid, block, args, shared, stream);
}

}  // extern "C"
