#include <algorithm>
#include <map>

#include "tests/host_cuda/engine/grid.h"

namespace host_cuda {
namespace {

// Filled before main, read after; never destroyed, as other objects' destructors may still launch.
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
  std::string name = kernel.name;
  Kernels().insert_or_assign(std::move(name), std::move(kernel));
}

const Kernel* FindKernel(const std::string& name) {
  const auto found = Kernels().find(name);
  return found == Kernels().end() ? nullptr : &found->second;
}

void RegisterVariable(Variable variable) {
  std::string name = variable.name;
  Variables().insert_or_assign(std::move(name), std::move(variable));
}

const Variable* FindVariable(const std::string& name) {
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
