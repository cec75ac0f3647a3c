#include "kernels/cpu/thread_pool.h"

#include <gtest/gtest.h>

#include <chrono>
#include <mutex>
#include <numeric>
#include <set>

#include "kernels/cpu/own_cores.h"

namespace sluice::kernels::cpu {
namespace {

TEST(ThreadPool, RunsEveryIndexOnceEachTime) {
  for (int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    ASSERT_EQ(pool.threads(), threads);
    std::vector<int> runs(size_t(threads), 0);
    for (int i = 0; i < 2000; ++i) pool.Run([&](int index) { ++runs[size_t(index)]; });
    EXPECT_EQ(runs, std::vector<int>(size_t(threads), 2000));
  }
}

cpu_set_t Cores(std::initializer_list<int> cores) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : cores) CPU_SET(core, &set);
  return set;
}

TEST(OwnCores, OfAProcessThatWasConfinedToThem) {
  EXPECT_EQ(OwnCores(Cores({2, 5, 9}), 3, 16), (std::vector<int>{2, 5, 9}));
  EXPECT_TRUE(OwnCores(Cores({2, 5, 9}), 2, 16).empty()) << "fewer threads: the system places them";
  EXPECT_TRUE(OwnCores(Cores({2, 5, 9}), 4, 16).empty());
  EXPECT_TRUE(OwnCores(Cores({0, 1}), 2, 2).empty()) << "the whole machine: others are on it";
}

TEST(ThreadPool, OneThreadIsTheCaller) {
  ThreadPool pool(1);
  pool.Run([caller = std::this_thread::get_id()](int) { EXPECT_EQ(std::this_thread::get_id(), caller); });
}

TEST(ThreadPool, WakesFromSleep) {
  ThreadPool pool(3);
  for (int i = 0; i < 5; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // far beyond the spin
    std::atomic<int> count = 0;
    pool.Run([&](int index) {
      if (index == 2) std::this_thread::sleep_for(std::chrono::milliseconds(5));  // the caller sleeps as well
      ++count;
    });
    EXPECT_EQ(count, 3);
  }
}

TEST(ThreadPool, RangesCoverOnceAndMeetAtGrains) {
  for (int threads : {1, 2, 3, 7}) {
    ThreadPool pool(threads);
    for (int64_t n : {0, 1, 7, 8, 9, 64, 65, 1000}) {
      std::vector<int> seen(size_t(n), 0);
      std::mutex mutex;
      std::set<int> indices;
      pool.RunRanges(n, 8, [&](int64_t begin, int64_t end, int index) {
        const std::lock_guard lock(mutex);
        EXPECT_EQ(begin % 8, 0);
        EXPECT_TRUE(end % 8 == 0 || end == n);
        EXPECT_LT(begin, end);
        EXPECT_TRUE(indices.insert(index).second);
        for (int64_t i = begin; i < end; ++i) ++seen[size_t(i)];
      });
      EXPECT_EQ(std::accumulate(seen.begin(), seen.end(), 0), n);
      for (int count : seen) EXPECT_EQ(count, 1);
    }
  }
}

}  // namespace
}  // namespace sluice::kernels::cpu
