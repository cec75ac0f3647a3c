#include "tests/host_cuda/runtime/settings.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace host_cuda::rt {
namespace {

[[noreturn]] void Refuse(const char* name, const char* value, const char* what) {
  std::fprintf(stderr, "host_cuda: %s=%s: %s\n", name, value, what);
  std::abort();
}

uint64_t Number(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == '\0') return otherwise;
  char* end = nullptr;
  errno = 0;
  const uint64_t value = std::strtoull(text, &end, 0);
  if (errno != 0 || *end != '\0') Refuse(name, text, "must be a number");
  return value;
}

}  // namespace

RuntimeSettings SettingsFromEnvironment() {
  RuntimeSettings s;
  s.devices = static_cast<int>(Number("HOST_CUDA_DEVICES", 1));
  if (s.devices < 0 || s.devices > kMaxDevices)
    Refuse("HOST_CUDA_DEVICES", std::getenv("HOST_CUDA_DEVICES"), "must be 0 to 16");
  s.memory = Number("HOST_CUDA_MEMORY", s.memory);
  s.seed = Number("HOST_CUDA_SEED", s.seed);
  s.late = std::chrono::microseconds(Number("HOST_CUDA_LATE_US", 300));
  if (const char* mode = std::getenv("HOST_CUDA_ON_ERROR")) {
    if (std::strcmp(mode, "abort") != 0 && std::strcmp(mode, "report") != 0) {
      Refuse("HOST_CUDA_ON_ERROR", mode, "must be abort or report");
    }
    s.abort_on_error = mode[0] == 'a';
  }
  if (const char* pinned = std::getenv("HOST_CUDA_PINNED")) {
    if (std::strcmp(pinned, "watch") != 0 && std::strcmp(pinned, "ignore") != 0) {
      Refuse("HOST_CUDA_PINNED", pinned, "must be watch or ignore");
    }
    s.watch_pinned = pinned[0] == 'w';
  }
  if (const char* fail = std::getenv("HOST_CUDA_FAIL")) s.fail = fail;
  return s;
}

}  // namespace host_cuda::rt
