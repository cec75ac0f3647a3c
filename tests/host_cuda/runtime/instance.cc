#include "tests/host_cuda/runtime/instance.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

namespace host_cuda::rt {
namespace {

// A page under this name marks the process: unlike a variable or a symbol it is seen across libraries that hide theirs,
// and unlike the environment it goes at exec.
constexpr char kMark[] = "host_cuda_runtime";

bool Marked() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find(std::string("/memfd:") + kMark) != std::string::npos) return true;
  }
  return false;
}

}  // namespace

void BeTheOnlyInstance() {
  if (Marked()) {
    std::fprintf(stderr,
                 "host_cuda: there are two test runtimes in this process: what loads plugins or the fakes with "
                 "dlopen must link host_cudart, not host_cuda_runtime\n");
    std::abort();
  }
  const int file = memfd_create(kMark, MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, 1) != 0) return;
  mmap(nullptr, 1, PROT_READ, MAP_PRIVATE, file, 0);
  close(file);
}

}  // namespace host_cuda::rt
