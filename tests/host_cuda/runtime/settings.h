// What the environment asks of the fake runtime. Read at its start and by Restart() (control.h); a value that can't be
// understood ends the process.
//   HOST_CUDA_DEVICES   how many there are (1)
//   HOST_CUDA_MEMORY    bytes of memory of each (1 GiB)
//   HOST_CUDA_SEED      of the order in which streams and graph nodes run (1)
//   HOST_CUDA_LATE_US   an idle device starts this long after the last work came, or when the host waits or asks (300)
//   HOST_CUDA_ON_ERROR  abort (the default) or report: what follows when a device finds something wrong
//   HOST_CUDA_PINNED    watch (the default) or ignore: see pinned_watch.h
//   HOST_CUDA_FAIL      failures on purpose: see injection.h, also for HOST_CUDA_FAIL_FILE
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

namespace host_cuda::rt {

constexpr int kMaxDevices = 16;

struct RuntimeSettings {
  int devices = 1;
  size_t memory = size_t{1} << 30;
  uint64_t seed = 1;
  std::chrono::microseconds late{300};
  bool abort_on_error = true;
  bool watch_pinned = true;
  std::string fail;
};

RuntimeSettings SettingsFromEnvironment();

}  // namespace host_cuda::rt
