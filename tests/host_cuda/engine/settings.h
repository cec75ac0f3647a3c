// How the engine behaves, from the environment, or set by a test between grids.
//   HOST_CUDA_ORDER    ascending, descending or random (the default): see schedule.h
//   HOST_CUDA_SEED     of the random order; grid n of the process uses a seed made of it and n
//   HOST_CUDA_STRICT_BARRIERS  1 (the default): a thread that exits while others wait for the whole block is an error;
//                      0: it counts as arrived, as the hardware does
#pragma once

#include <cstdint>

namespace host_cuda {

enum class Order { kAscending, kDescending, kRandom };

struct Settings {
  Order order = Order::kRandom;
  uint64_t seed = 1;
  bool strict_barriers = true;
};

// Not for use while a grid runs on another thread.
Settings& CurrentSettings();

const char* OrderName(Order order);

}  // namespace host_cuda
