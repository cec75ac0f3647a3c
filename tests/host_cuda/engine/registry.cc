#include <algorithm>
#include <map>
#include <mutex>

#include "tests/host_cuda/engine/grid.h"

namespace host_cuda {
namespace {

// Filled before main and when a plugin is loaded, which others may launch meanwhile.
std::mutex& RegistryMutex() {
  static auto* mutex = new std::mutex;
  return *mutex;
}

// Never destroyed, as other objects' destructors may still launch.
std::map<std::string, Kernel>& Kernels() {
  static auto* kernels = new std::map<std::string, Kernel>;
  return *kernels;
}

std::map<std::string, Variable>& Variables() {
  static auto* variables = new std::map<std::string, Variable>;
  return *variables;
}

}  // namespace

void RegisterKernel(Kernel kernel) {
  std::lock_guard<std::mutex> lock(RegistryMutex());
  std::string name = kernel.name;
  Kernels().insert_or_assign(std::move(name), std::move(kernel));
}

const Kernel* FindKernel(const std::string& name) {
  std::lock_guard<std::mutex> lock(RegistryMutex());
  const auto found = Kernels().find(name);
  return found == Kernels().end() ? nullptr : &found->second;
}

void RegisterVariable(Variable variable) {
  std::lock_guard<std::mutex> lock(RegistryMutex());
  std::string name = variable.name;
  Variables().insert_or_assign(std::move(name), std::move(variable));
}

const Variable* FindVariable(const std::string& name) {
  std::lock_guard<std::mutex> lock(RegistryMutex());
  const auto found = Variables().find(name);
  return found == Variables().end() ? nullptr : &found->second;
}

bool IsConstant(const void* address) {
  const auto at = reinterpret_cast<uintptr_t>(address);
  return std::any_of(Variables().begin(), Variables().end(), [=](const auto& named) {
    const Variable& variable = named.second;
    return variable.constant && at - reinterpret_cast<uintptr_t>(variable.address) < variable.bytes;
  });
}

}  // namespace host_cuda
