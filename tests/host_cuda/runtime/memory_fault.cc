#include "tests/host_cuda/runtime/memory_fault.h"

#include <csignal>
#include <cstdio>
#include <mutex>

#include "tests/host_cuda/runtime/report.h"
#include "tests/host_cuda/runtime/runtime.h"

namespace host_cuda::rt {
namespace {

struct sigaction earlier_segv, earlier_bus;

// The process is lost; so what is not allowed in a handler is tried all the same.
std::string WhatIsAt(const void* p) {
  Runtime& runtime = TheRuntime();
  std::unique_lock<std::mutex> lock(runtime.mutex, std::try_to_lock);
  if (!lock.owns_lock()) return {};
  const Block* block = runtime.memory->Find(p);
  if (block != nullptr) return Describe(*block);
  for (int d = 0; d < runtime.settings.devices; ++d) {
    if (!runtime.memory->arena(d).Contains(p)) continue;
    const Block* before = runtime.memory->FindBefore(p);
    return "no memory of device " + std::to_string(d) +
           (before != nullptr ? "; before it lies " + Describe(*before) : "");
  }
  return {};
}

void OnFault(int signal, siginfo_t* info, void* context) {
  const std::string what = WhatIsAt(info->si_addr);
  if (!what.empty()) {
    char address[32];
    std::snprintf(address, sizeof address, "%p", info->si_addr);
    Report(std::string("access to ") + address + ", which is " + what);
  }
  const struct sigaction& earlier = signal == SIGBUS ? earlier_bus : earlier_segv;
  if ((earlier.sa_flags & SA_SIGINFO) != 0 && earlier.sa_sigaction != nullptr) {
    earlier.sa_sigaction(signal, info, context);
    return;
  }
  sigaction(signal, &earlier, nullptr);  // and the same access once more
}

}  // namespace

void WatchFaults() {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction action = {};
    action.sa_sigaction = OnFault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    sigaction(SIGSEGV, &action, &earlier_segv);
    sigaction(SIGBUS, &action, &earlier_bus);
  });
}

}  // namespace host_cuda::rt
