#include "kernels/plugin/cuda_plugin.h"

#include <dlfcn.h>
#include <unistd.h>

#include <climits>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace sluice::kernels {

std::string DefaultCudaPluginPath() {
  char program[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", program, sizeof(program));
  if (length <= 0) return "backend_cuda.so";
  std::string path(program, size_t(length));
  return path.substr(0, path.rfind('/') + 1) + "backend_cuda.so";
}

bool HasCudaDriver() {
  return access("/dev/nvidiactl", F_OK) == 0;
}

absl::StatusOr<const CudaPlugin*> LoadCudaPlugin(const std::string& path) {
  if (access(path.c_str(), R_OK) != 0) {
    return absl::NotFoundError(absl::StrCat("the CUDA backend is not at ", path, ": it is built where there is nvcc"));
  }
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat("the CUDA backend cannot be loaded: ", dlerror()));
  }
  const auto plugin = reinterpret_cast<CudaPluginFunction>(dlsym(library, kCudaPluginSymbol));
  if (plugin == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(path, " is no CUDA backend: it has no ", kCudaPluginSymbol));
  }
  if (std::strcmp(plugin()->build, kCudaPluginBuild) != 0) {
    return absl::FailedPreconditionError(absl::StrCat("the CUDA backend ", path, " is of another build (",
                                                      plugin()->build, "; this program: ", kCudaPluginBuild, ")"));
  }
  return plugin();
}

}  // namespace sluice::kernels
