#include "worker/host_id.h"

#include <limits.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>

#include "absl/strings/str_cat.h"

namespace sluice::worker {
namespace {

std::string FirstLine(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string LinkTarget(const char* path) {
  char target[PATH_MAX];
  const ssize_t size = readlink(path, target, sizeof(target));
  return size > 0 ? std::string(target, size_t(size)) : "";
}

// FNV-1a: the same in every process and build.
uint64_t StableHash(const std::string& text) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const unsigned char c : text) hash = (hash ^ c) * 0x100000001b3u;
  return hash;
}

}  // namespace

std::string HostId() {
  std::string machine = FirstLine("/etc/machine-id");
  if (machine.empty()) machine = FirstLine("/proc/sys/kernel/random/boot_id");
  char host[HOST_NAME_MAX + 1] = {};
  gethostname(host, sizeof(host) - 1);
  return absl::StrCat(
      absl::Hex(StableHash(absl::StrCat(machine, "/", host, "/", LinkTarget("/proc/self/ns/ipc"))), absl::kZeroPad16));
}

}  // namespace sluice::worker
