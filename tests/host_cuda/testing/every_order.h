// Runs a check in every order: ascending, descending, and random with several seeds.
#pragma once

#include <cstdint>
#include <functional>

#include "tests/host_cuda/engine/settings.h"

namespace host_cuda::testing {

inline void ForEveryOrder(const std::function<void()>& check, int seeds = 20) {
  const Settings before = CurrentSettings();
  for (const Order order : {Order::kAscending, Order::kDescending}) {
    CurrentSettings().order = order;
    check();
  }
  CurrentSettings().order = Order::kRandom;
  for (int seed = 1; seed <= seeds; ++seed) {
    CurrentSettings().seed = static_cast<uint64_t>(seed);
    check();
  }
  CurrentSettings() = before;
}

}  // namespace host_cuda::testing
