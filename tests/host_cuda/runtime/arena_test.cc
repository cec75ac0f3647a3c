#include "tests/host_cuda/runtime/arena.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

namespace host_cuda::rt {
namespace {

TEST(Arena, BlocksAreAlignedFilledWithOnesAndApart) {
  Arena arena;
  std::mt19937 random(7);
  std::vector<std::pair<char*, size_t>> blocks;
  for (int i = 0; i < 300; ++i) {
    if (!blocks.empty() && random() % 3 == 0) {
      const size_t victim = random() % blocks.size();
      arena.Release(blocks[victim].first);
      blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(victim));
      continue;
    }
    const size_t bytes = random() % 10000;
    char* p = arena.Allocate(bytes);
    ASSERT_NE(p, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(p) % 256, 0u);
    arena.Open(p);
    EXPECT_TRUE(std::all_of(p, p + bytes, [](char c) { return c == '\xff'; }));
    for (const auto& [other, n] : blocks) EXPECT_TRUE(p + bytes + 4096 <= other || other + n + 4096 <= p);
    blocks.push_back({p, bytes});
  }
}

#if !defined(__SANITIZE_ADDRESS__)
TEST(Arena, SeesAWritePastTheEnd) {
  Arena arena;
  char* p = arena.Allocate(100);
  arena.Open(p);
  EXPECT_TRUE(arena.TailIntact(p));
  p[100] = 0;
  EXPECT_FALSE(arena.TailIntact(p));
}
#endif

TEST(ArenaDeathTest, AClosedBlockFaults) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Arena arena;
  char* p = arena.Allocate(100);
  arena.Open(p);
  p[0] = 1;
  arena.Close(p);
  EXPECT_DEATH(*static_cast<volatile char*>(p) = 1, "");
  arena.Open(p);
  EXPECT_EQ(p[0], '\xff');
}

}  // namespace
}  // namespace host_cuda::rt
