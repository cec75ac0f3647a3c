// Worker option --kv-channel as what the endpoints take.
#pragma once

#include <string>
#include <vector>

#include "worker/options.h"

namespace sluice::worker {

inline std::vector<std::string> KvChannelsOf(const WorkerOptions& options) {
  if (options.kv_channel == "auto") return {"shm", "tcp"};
  return {options.kv_channel};
}

}  // namespace sluice::worker
