// Runs a C++ function as the body of a kernel: for tests of the engine that need no PTX.
#pragma once

#include <functional>
#include <string>

#include "tests/host_cuda/engine/grid.h"
#include "tests/host_cuda/engine/machine.h"
#include "tests/host_cuda/testing/every_order.h"

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

}  // namespace host_cuda::testing
