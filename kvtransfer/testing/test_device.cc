#include "kvtransfer/testing/test_device.h"

#include <unistd.h>

#include <cstdlib>
#include <map>
#include <mutex>
#include <utility>

#include "glog/logging.h"
#include "kernels/plugin/cuda_plugin.h"

namespace sluice::kvtransfer {
namespace {

const char* PluginPath() {
  const char* const path = std::getenv("SLUICE_TEST_CUDA_PLUGIN");
  return path != nullptr && access(path, R_OK) == 0 ? path : nullptr;
}

const kernels::Backend& TestBackend(int device) {
  static auto& mutex = *new std::mutex;
  static auto& backends = *new std::map<int, std::unique_ptr<kernels::Backend>>;
  const std::lock_guard lock(mutex);
  std::unique_ptr<kernels::Backend>& backend = backends[device];
  if (backend == nullptr) {
    const auto plugin = kernels::LoadCudaPlugin(PluginPath());
    CHECK(plugin.ok()) << plugin.status();
    auto made = (*plugin)->new_backend({.device = device});
    CHECK(made.ok()) << made.status();
    backend = *std::move(made);
  }
  return *backend;
}

}  // namespace

bool HaveTestDevices() {
  return PluginPath() != nullptr;
}

std::unique_ptr<kernels::KvPool> NewTestPool(int device, const kernels::KvLayout& layout, int num_blocks) {
  auto pool = TestBackend(device).NewKvPool(layout, num_blocks);
  CHECK(pool.ok()) << pool.status();
  return *std::move(pool);
}

}  // namespace sluice::kvtransfer
