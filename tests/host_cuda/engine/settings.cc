#include "tests/host_cuda/engine/settings.h"

#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace host_cuda {
namespace {

Settings FromEnvironment() {
  Settings settings;
  if (const char* order = std::getenv("HOST_CUDA_ORDER")) {
    const std::string_view name = order;
    if (name == "ascending") {
      settings.order = Order::kAscending;
    } else if (name == "descending") {
      settings.order = Order::kDescending;
    } else if (name != "random") {
      std::fprintf(stderr, "HOST_CUDA_ORDER=%s: must be ascending, descending or random\n", order);
      std::abort();
    }
  }
  if (const char* seed = std::getenv("HOST_CUDA_SEED")) settings.seed = std::strtoull(seed, nullptr, 10);
  if (const char* strict = std::getenv("HOST_CUDA_STRICT_BARRIERS")) settings.strict_barriers = strict[0] != '0';
  return settings;
}

}  // namespace

Settings& CurrentSettings() {
  static Settings settings = FromEnvironment();
  return settings;
}

const char* OrderName(Order order) {
  switch (order) {
    case Order::kAscending:
      return "ascending";
    case Order::kDescending:
      return "descending";
    case Order::kRandom:
      break;
  }
  return "random";
}

}  // namespace host_cuda
