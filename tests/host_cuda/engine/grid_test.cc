#include "tests/host_cuda/engine/grid.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <set>
#include <thread>
#include <tuple>
#include <vector>

#include "tests/host_cuda/engine/async_copy.h"
#include "tests/host_cuda/engine/barrier.h"
#include "tests/host_cuda/engine/memory_order.h"
#include "tests/host_cuda/engine/sanitizers.h"
#include "tests/host_cuda/testing/run.h"

namespace host_cuda {
namespace {

using testing::ForEveryOrder;
using ::testing::HasSubstr;
using testing::RunAs;
using testing::RunBlock;

TEST(Grid, EveryThreadOfEveryBlockRunsOnce) {
  ForEveryOrder([] {
    std::set<std::tuple<uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t>> seen;
    EXPECT_EQ(RunAs(Kernel(), Launch{{3, 2, 2}, {5, 3, 4}, 0},
                    [&] {
                      const Dim3 &b = this_machine->block, &t = Self().index;
                      EXPECT_EQ(Self().linear, t.x + 5 * (t.y + 3 * t.z));
                      EXPECT_TRUE(seen.insert({b.x, b.y, b.z, t.x, t.y, t.z}).second);
                    }),
              "");
    EXPECT_EQ(seen.size(), 3u * 2 * 2 * 5 * 3 * 4);
  });
}

TEST(Grid, TheOrdersAreWhatTheySay) {
  auto order_of = [](Order order, uint64_t seed) {
    CurrentSettings().order = order;
    CurrentSettings().seed = seed;
    std::vector<uint32_t> order_seen;
    EXPECT_EQ(RunAs(Kernel(), Launch{{2, 1, 1}, {40, 1, 1}, 0},
                    [&] { order_seen.push_back(this_machine->block.x * 40 + Self().linear); }),
              "");
    return order_seen;
  };
  const Settings before = CurrentSettings();
  std::vector<uint32_t> ascending(80), descending(80);
  for (uint32_t i = 0; i < 80; ++i) ascending[i] = descending[79 - i] = i;
  EXPECT_EQ(order_of(Order::kAscending, 1), ascending);
  EXPECT_EQ(order_of(Order::kDescending, 1), descending);
  EXPECT_NE(order_of(Order::kRandom, 1), order_of(Order::kRandom, 2));
  CurrentSettings() = before;
}

TEST(Grid, LaunchLimits) {
  Kernel kernel;
  kernel.max_threads = 128;
  auto refused = [&](Launch launch) { return RunAs(kernel, launch, [] {}); };
  EXPECT_EQ(refused({{1, 1, 1}, {128, 1, 1}, 0}), "");
  EXPECT_THAT(refused({{1, 1, 1}, {129, 1, 1}, 0}), HasSubstr("129 threads in a block: at most 128"));
  EXPECT_THAT(refused({{0, 1, 1}, {1, 1, 1}, 0}), HasSubstr("empty"));
  EXPECT_THAT(refused({{1, 65536, 1}, {1, 1, 1}, 0}), HasSubstr("grid (1,65536,1)"));
  EXPECT_THAT(refused({{1, 1, 1}, {1, 1, 65}, 0}), HasSubstr("block (1,1,65)"));
  EXPECT_EQ(refused({{1, 1, 1}, {1, 1, 1}, kMaxSharedPerBlock}), "");
  EXPECT_THAT(refused({{1, 1, 1}, {1, 1, 1}, kMaxSharedPerBlock + 1}), HasSubstr("bytes of shared memory"));
}

Kernel WithTwoVariables() {
  Kernel kernel;
  kernel.shared = {{64, 16, "first"}, {192, 12, "second"}};
  kernel.static_shared_bytes = 28;
  return kernel;
}

TEST(SharedMemory, IsLowAndFullOfNaNs) {
  EXPECT_EQ(
      RunAs(WithTwoVariables(), Launch{{3, 1, 1}, {1, 1, 1}, 100},
            [] {
              const SharedMemory& shared = this_machine->shared;
              EXPECT_LT(shared.end(), uint64_t{1} << 32);
              for (const auto& [at, bytes] : {std::pair(shared.base() + 64, 16), std::pair(shared.base() + 192, 12),
                                              std::pair(shared.dynamic(), 100)}) {
                auto* p = reinterpret_cast<unsigned char*>(at);
                for (int i = 0; i < bytes; ++i) EXPECT_EQ(p[i], 0xff);
                std::memset(p, 0, static_cast<size_t>(bytes));  // the next block must not see it
              }
            }),
      "");
}

// Overruns by one byte: of the first variable into the gap, of the last, and of dynamic memory. Under ASan the access
// itself is reported and the process ends.
void Overrun(int which) {
  const std::string error = RunAs(WithTwoVariables(), Launch{{1, 1, 1}, {1, 1, 1}, 100}, [which] {
    const SharedMemory& shared = this_machine->shared;
    const uint64_t at[] = {shared.base() + 64 + 16, shared.base() + 192 + 12, shared.dynamic() + 100,
                           shared.base() + 63};
    *reinterpret_cast<volatile unsigned char*>(at[which]) = 0;
  });
  const char* const expected[] = {"byte 0 behind first", "byte 0 behind second", "byte 0 behind dynamic shared memory",
                                  "byte 63 behind the beginning"};
  EXPECT_THAT(error, HasSubstr(expected[which]));
}

TEST(SharedMemory, OverrunsAreFound) {
  for (int which = 0; which < 4; ++which) {
#if defined(HOST_CUDA_ASAN)
    EXPECT_DEATH(Overrun(which), "use-after-poison");
#else
    Overrun(which);
#endif
  }
}

TEST(AsyncCopy, ComesWithTheWaitForItsGroup) {
  EXPECT_EQ(RunBlock(1,
                     [] {
                       int a = 0, b = 0;
                       const int one = 1;
                       IssueCopy({&a, &one, 4, 4});
                       CommitCopies();
                       IssueCopy({&b, &one, 4, 4});
                       CommitCopies();
                       std::vector<AsyncCopy> group;
                       ASSERT_TRUE(TakeGroup(1, &group));
                       ASSERT_EQ(group.size(), 1u);
                       EXPECT_EQ(group[0].to, &a);
                       EXPECT_FALSE(TakeGroup(1, &group));
                       ASSERT_TRUE(TakeGroup(0, &group));
                       EXPECT_EQ(group[0].to, &b);
                       IssueCopy({&a, &one, 4, 4});
                       EXPECT_FALSE(TakeGroup(0, &group));
                       EXPECT_TRUE(TakeAny(&group));
                       EXPECT_FALSE(TakeAny(&group));
                     }),
            "");
}

TEST(MemoryOrder, ASpinGivesOthersTheirTurn) {
  ForEveryOrder([] {
    volatile int flag = 0;
    EXPECT_EQ(RunBlock(64,
                       [&] {
                         if (Self().linear == 40) flag = 1;
                         while (flag == 0) AfterLoad(nullptr, Ordering::kRelaxed, Loc::current());
                       }),
              "");
  });
}

TEST(Grid, AFailureEndsTheGridAndTheNextOneRuns) {
  for (int i = 0; i < 3; ++i) {
    const std::string error = RunAs(Kernel(), Launch{{4, 1, 1}, {64, 2, 1}, 0}, [] {
      if (Self().index.x == 7 && Self().index.y == 1) Fail(Loc::current(), "planted");
      BlockBarrier(BarrierOp::kSync, 0, 0, false);
    });
    EXPECT_THAT(error, HasSubstr("planted"));
    EXPECT_THAT(error, HasSubstr("thread (7,1,0)"));
    EXPECT_EQ(RunBlock(1024, [] { BlockBarrier(BarrierOp::kSync, 0, 0, false); }), "");
  }
}

TEST(Grid, OsThreadsRunGridsAtOnce) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([] {
      static thread_local uint32_t sum;
      sum = 0;
      Kernel kernel;
      kernel.name = "sum";
      kernel.body = [](const unsigned char*) {
        sum += Self().linear;
        BlockBarrier(BarrierOp::kSync, 0, 0, false);
      };
      EXPECT_EQ(RunGrid(kernel, Launch{{50, 1, 1}, {64, 1, 1}, 0}, nullptr), "");
      EXPECT_EQ(sum, 50u * 2016);
    });
  }
  for (auto& thread : threads) thread.join();
}

TEST(Registry, FindsByName) {
  EXPECT_EQ(FindKernel("nobody"), nullptr);
  Kernel kernel;
  kernel.name = "somebody";
  RegisterKernel(kernel);
  ASSERT_NE(FindKernel("somebody"), nullptr);
  int variable = 0;
  RegisterVariable({"a_variable", &variable, 4});
  EXPECT_EQ(FindVariable("a_variable")->address, &variable);
}

}  // namespace
}  // namespace host_cuda
