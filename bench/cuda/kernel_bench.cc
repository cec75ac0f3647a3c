// Every kernel of the CUDA backend alone, at the shapes of Llama-3.1-8B.
//
//   kernel_bench [--filter TEXT] [--list] [--tiny]
//
// Launches are timed in groups between two events of the device, so that neither the host nor a launch's latency counts
// where the kernel takes longer than that. JSON, a line each: the device, then of each case median and best of the
// groups.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "bench/cuda/kernel_cases.h"
#include "kernels/cuda/backend/errors.h"
#include "nlohmann/json.hpp"

namespace sluice::bench {
namespace {

using kernels::cuda::ToStatus;

struct Flags {
  std::string filter;
  bool list = false, tiny = false;
  int device = 0, groups = 9;
  double group_ms = 20;
};

// Owns a stream and two events.
class Timer {
 public:
  Timer() {
    error_ = cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking);
    for (cudaEvent_t* event : {&begin_, &end_}) {
      if (error_ == cudaSuccess) error_ = cudaEventCreate(event);
    }
  }
  Timer(const Timer&) = delete;
  ~Timer() {
    for (cudaEvent_t event : {begin_, end_}) {
      if (event != nullptr) cudaEventDestroy(event);
    }
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }

  // Microseconds of one of `count` launches.
  absl::StatusOr<double> Group(const Launch& launch, int count) {
    cudaError_t error = error_;
    if (error == cudaSuccess) error = cudaEventRecord(begin_, stream_);
    for (int i = 0; i < count && error == cudaSuccess; ++i) error = launch(next_++, stream_);
    if (error == cudaSuccess) error = cudaEventRecord(end_, stream_);
    if (error == cudaSuccess) error = cudaEventSynchronize(end_);
    float ms = 0;
    if (error == cudaSuccess) error = cudaEventElapsedTime(&ms, begin_, end_);
    if (error != cudaSuccess) return ToStatus(error, "a launch");
    return double(ms) * 1e3 / count;
  }

 private:
  cudaStream_t stream_ = nullptr;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
  cudaError_t error_;
  int next_ = 0;
};

absl::StatusOr<nlohmann::json> Measure(const Flags& flags, const KernelCase& c) {
  auto launch = c.make();
  if (!launch.ok()) return launch.status();
  Timer timer;
  auto once = timer.Group(*launch, 2);  // a warm-up
  if (once.ok()) once = timer.Group(*launch, 2);
  if (!once.ok()) return once.status();
  const int count = flags.tiny ? 1 : int(std::clamp(flags.group_ms * 1e3 / std::max(*once, 1.0), 2.0, 2000.0));
  std::vector<double> us;
  for (int i = 0; i < flags.groups; ++i) {
    auto group = timer.Group(*launch, count);
    if (!group.ok()) return group.status();
    us.push_back(*group);
  }
  std::sort(us.begin(), us.end());
  const double median = us[us.size() / 2];
  return nlohmann::json{{"kernel", c.kernel},
                        {"shape", c.shape},
                        {"us", median},
                        {"best_us", us.front()},
                        {"bytes", c.bytes},
                        {"flops", c.flops},
                        {"gb_per_s", c.bytes / median / 1e3},
                        {"tflop_per_s", c.flops / median / 1e6},
                        {"launches", count * flags.groups}};
}

absl::StatusOr<nlohmann::json> DeviceFacts(int device) {
  cudaDeviceProp properties;
  int driver = 0;
  cudaError_t error = cudaGetDeviceProperties(&properties, device);
  if (error == cudaSuccess) error = cudaDriverGetVersion(&driver);
  if (error != cudaSuccess) return ToStatus(error, "the GPU's properties");
  return nlohmann::json{{"device", properties.name},
                        {"sm", properties.major * 10 + properties.minor},
                        {"processors", properties.multiProcessorCount},
                        {"memory_bytes", properties.totalGlobalMem},
                        {"l2_bytes", properties.l2CacheSize},
                        {"cuda_of_driver", driver}};
}

absl::Status Run(const Flags& flags) {
  if (absl::Status status = ToStatus(cudaSetDevice(flags.device), "choosing the GPU"); !status.ok()) return status;
  if (!flags.list) {
    auto facts = DeviceFacts(flags.device);
    if (!facts.ok()) return facts.status();
    std::cout << facts->dump() << std::endl;
  }
  std::vector<KernelCase> cases = RowCases(flags.tiny);
  for (auto more : {ProductCases(flags.tiny), AttentionCases(flags.tiny)}) {
    cases.insert(cases.end(), more.begin(), more.end());
  }
  for (const KernelCase& c : cases) {
    if ((c.kernel + " " + c.shape).find(flags.filter) == std::string::npos) continue;
    if (flags.list) {
      std::cout << c.kernel << "  " << c.shape << "\n";
      continue;
    }
    auto result = Measure(flags, c);
    if (!result.ok()) {
      return absl::Status(result.status().code(),
                          c.kernel + ", " + c.shape + ": " + std::string(result.status().message()));
    }
    std::cout << result->dump() << std::endl;  // whoever waits sees it now
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace sluice::bench

int main(int argc, char** argv) {
  CLI::App app("Kernels of the CUDA backend alone");
  sluice::bench::Flags flags;
  app.add_option("--filter", flags.filter, "Only cases whose name holds this");
  app.add_option("--device", flags.device, "GPU")->capture_default_str();
  app.add_option("--groups", flags.groups, "Timed groups of launches")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--group-ms", flags.group_ms, "How long a group should take")
      ->check(CLI::Range(0.1, 1000.0))
      ->capture_default_str();
  app.add_flag("--list", flags.list, "Print the cases");
  app.add_flag("--tiny", flags.tiny, "Small shapes, for the test runtime");
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = sluice::bench::Run(flags);
  if (status.ok()) return 0;
  std::cerr << "kernel_bench: " << status.message() << "\n";
  return 1;
}
