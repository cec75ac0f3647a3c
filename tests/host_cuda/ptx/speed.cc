// How fast the engine is: threads, barriers, shuffles and matrix products on one core. For people; no test asserts it.
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <functional>

#include "tests/host_cuda/engine/barrier.h"
#include "tests/host_cuda/engine/warp.h"
#include "tests/host_cuda/ptx/mma.h"
#include "tests/host_cuda/testing/run.h"

namespace host_cuda {
namespace {

// Of the processor, as other programs may run.
double Now() {
  timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double Seconds(uint32_t blocks, uint32_t threads, const std::function<void()>& body) {
  double best = 1e9;
  for (int round = 0; round < 5; ++round) {
    const double start = Now();
    const std::string error = testing::RunAs(Kernel(), Launch{{blocks, 1, 1}, {threads, 1, 1}, 0}, body);
    const double took = Now() - start;
    if (!error.empty()) std::puts(error.c_str());
    best = std::min(best, took);
  }
  return best;
}

void Measure(Order order) {
  CurrentSettings().order = order;
  constexpr uint32_t kBlocks = 2000, kThreads = 128, kTimes = 100;
  const double empty = Seconds(kBlocks, kThreads, [] {});
  const double barrier = Seconds(kBlocks / 10, kThreads, [] {
    for (uint32_t i = 0; i < kTimes; ++i) BlockBarrier(BarrierOp::kSync, 0, 0, false);
  });
  const double shuffle = Seconds(kBlocks / 10, kThreads, [] {
    for (uint32_t i = 0; i < kTimes; ++i) Shuffle(ShuffleMode::kButterfly, i, 1, 31, ~0u);
  });
  const double mma = Seconds(kBlocks / 10, kThreads, [] {
    const ptx::MmaTile tile{ptx::Element::kBf16, ptx::Element::kBf16, 16, 8, false, false};
    ptx::Items<uint32_t, 4> a{}, c{};
    ptx::Items<uint32_t, 2> b{};
    for (uint32_t i = 0; i < kTimes; ++i) c = ptx::MatrixMultiply<4, 4, 2>(tile, a, b, c);
  });
  const double each = kBlocks / 10 * kThreads * double{kTimes};
  std::printf("%-10s  %5.1f M threads/s   barrier %5.1f ns a thread   shuffle %5.1f ns a lane   mma m16n8k16 %.2f us\n",
              OrderName(order), kBlocks * kThreads / empty / 1e6, barrier / each * 1e9, shuffle / each * 1e9,
              mma / (each / 32) * 1e6);
}

}  // namespace
}  // namespace host_cuda

int main() {
  for (const auto order : {host_cuda::Order::kAscending, host_cuda::Order::kDescending, host_cuda::Order::kRandom}) {
    host_cuda::Measure(order);
  }
}
