// What one router has not been told yet of the engine's prefix cache. Pure.
//
// A stream begins with CLEARED and all that is stored; after that come the changes, numbered by the cache's own log. A
// router that fell further behind than the log reaches starts again. Names beyond `kMostNames` a message wait for the
// next one.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/prefix_cache.h"
#include "proto/worker.pb.h"

namespace sluice::worker {

class PrefixFeed {
 public:
  static constexpr size_t kMostNames = 128 * 1024;  // 2 MiB

  // Empty where there is nothing new.
  v1::PrefixEvents Next(const engine::PrefixCache& cache);

  // The router has lost count.
  void Restart() { begun_ = false; }

 private:
  bool begun_ = false;
  uint64_t told_ = 0;  // number of the newest change that it knows
};

}  // namespace sluice::worker
