// What the router's core has counted since it started.
#pragma once

#include <array>
#include <cstdint>

namespace sluice::router {

struct CoreCounters {
  uint64_t moves = 0;                         // of requests to other workers, because those that had them failed
  std::array<uint64_t, 4> workers_lost = {};  // by v1::Role: ended without a goodbye
};

}  // namespace sluice::router
