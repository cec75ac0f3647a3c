// In place of the engine, for tests of the runtime alone: a kernel is a plain function that runs once a grid.
#include <map>

#include "tests/host_cuda/engine/grid.h"

namespace host_cuda {
namespace {

std::map<std::string, Kernel>& Kernels() {
  static auto& kernels = *new std::map<std::string, Kernel>;
  return kernels;
}
std::map<std::string, Variable>& Variables() {
  static auto& variables = *new std::map<std::string, Variable>;
  return variables;
}

}  // namespace

void RegisterKernel(Kernel kernel) {
  Kernels()[kernel.name] = kernel;
}

const Kernel* FindKernel(const std::string& name) {
  auto found = Kernels().find(name);
  return found == Kernels().end() ? nullptr : &found->second;
}

std::string RunGrid(const Kernel& kernel, const Launch&, const unsigned char* params) {
  kernel.body(params);
  return {};
}

void RegisterVariable(Variable variable) {
  Variables()[variable.name] = variable;
}

const Variable* FindVariable(const std::string& name) {
  auto found = Variables().find(name);
  return found == Variables().end() ? nullptr : &found->second;
}

}  // namespace host_cuda
