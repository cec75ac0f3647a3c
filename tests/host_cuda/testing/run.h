// Runs a C++ function as the body of a kernel: for tests of the engine that need no PTX.
#pragma once

#include <functional>
#include <string>

#include "tests/host_cuda/engine/grid.h"
#include "tests/host_cuda/engine/machine.h"
#include "tests/host_cuda/engine/settings.h"

namespace host_cuda::testing {

inline thread_local const std::function<void()>* body_to_run = nullptr;

inline std::string RunAs(const Kernel& like, const Launch& launch, const std::function<void()>& body) {
  Kernel kernel = like;
  if (kernel.name.empty()) kernel.name = "test_kernel";
  kernel.body = [](const unsigned char*) { (*body_to_run)(); };
  body_to_run = &body;
  return RunGrid(kernel, launch, nullptr);
}

// One block.
inline std::string RunBlock(uint32_t threads, const std::function<void()>& body) {
  return RunAs(Kernel(), Launch{{1, 1, 1}, {threads, 1, 1}, 0}, body);
}

// Every order, random with several seeds.
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
