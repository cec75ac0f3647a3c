// Instructions of memory, calls and cooperation, from testing/snippets.ptx.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>
#include <vector>

#include "tests/host_cuda/engine/grid.h"
#include "tests/host_cuda/engine/sanitizers.h"
#include "tests/host_cuda/ptx/small_float.h"
#include "tests/host_cuda/testing/run.h"

namespace host_cuda {
namespace {

using testing::ForEveryOrder;
using ::testing::HasSubstr;

struct Params {
  const void* in;
  void* out;
  uint32_t mode;
};

std::string RunKernel(const char* name, uint32_t threads, const void* in, void* out, uint32_t mode = 0,
                      size_t dynamic = 0) {
  const Kernel* kernel = FindKernel(name);
  if (kernel == nullptr) return "no such kernel";
  const Params params{in, out, mode};
  return RunGrid(*kernel, Launch{{1, 1, 1}, {threads, 1, 1}, dynamic}, reinterpret_cast<const unsigned char*>(&params));
}

std::vector<uint32_t> Lanes(uint32_t n) {
  std::vector<uint32_t> values(n);
  for (uint32_t i = 0; i < n; ++i) values[i] = 3 * i + 1;
  return values;
}

TEST(Snippets, Shuffles) {
  ForEveryOrder([] {
    const std::vector<uint32_t> in = Lanes(32);
    std::vector<uint32_t> out(128);
    ASSERT_EQ(RunKernel("shuffles", 32, in.data(), out.data()), "");
    for (uint32_t i = 0; i < 32; ++i) {
      EXPECT_EQ(out[4 * i], in[i ^ 5]);
      EXPECT_EQ(out[4 * i + 1], in[i / 8 * 8 + 3]);  // segments of eight
      EXPECT_EQ(out[4 * i + 2], i < 2 ? 777 : in[i - 2]);
      EXPECT_EQ(out[4 * i + 3], i < 2 ? in[i + 30] : 777);
    }
  });
}

TEST(Snippets, VotesMatchesAndReductions) {
  ForEveryOrder([] {
    const std::vector<uint32_t> in = Lanes(32);
    std::vector<uint32_t> out(256);
    ASSERT_EQ(RunKernel("votes", 32, in.data(), out.data()), "");
    uint32_t ballot = 0, sum = 0;
    for (uint32_t i = 0; i < 32; ++i) {
      ballot |= in[i] > 20 ? 1u << i : 0;
      sum += in[i];
    }
    for (uint32_t i = 0; i < 32; ++i) {
      uint32_t same = 0;
      for (uint32_t j = 0; j < 32; ++j) same |= in[i] % 4 == in[j] % 4 ? 1u << j : 0;
      const std::vector<uint32_t> got(out.begin() + 8 * i, out.begin() + 8 * i + 8);
      EXPECT_EQ(got, (std::vector<uint32_t>{ballot, 1, 0, 0, same, 99, sum, in[31]}));
    }
  });
}

TEST(Snippets, BarrierReductions) {
  ForEveryOrder([] {
    const std::vector<uint32_t> in = Lanes(70);
    std::vector<uint32_t> out(280);
    ASSERT_EQ(RunKernel("reductions", 70, in.data(), out.data()), "");
    for (uint32_t i = 0; i < 70; ++i) {
      EXPECT_EQ(std::vector<uint32_t>(out.begin() + 4 * i, out.begin() + 4 * i + 3), (std::vector<uint32_t>{63, 0, 1}));
    }
  });
}

TEST(Snippets, ReductionsOfBitsAndMatchesOfDoubleWords) {
  ForEveryOrder([] {
    std::vector<uint32_t> in = Lanes(32), out(256);
    in[5] = 0x80000001u;
    in[9] = 0xffffffffu;
    ASSERT_EQ(RunKernel("reduxes", 32, in.data(), out.data()), "");
    uint32_t all = ~0u, any = 0, odd = 0, least = ~0u;
    int32_t least_signed = INT32_MAX;
    for (const uint32_t v : in) {
      all &= v, any |= v, odd ^= v;
      least = std::min(least, v);
      least_signed = std::min(least_signed, static_cast<int32_t>(v));
    }
    constexpr uint32_t kHigh = 1u << 5 | 1u << 9;  // their sign is 1
    for (uint32_t i = 0; i < 32; ++i) {
      const uint32_t same = (kHigh >> i & 1) != 0 ? kHigh : ~kHigh;
      EXPECT_EQ(std::vector<uint32_t>(out.begin() + 8 * i, out.begin() + 8 * i + 8),
                (std::vector<uint32_t>{all, any, odd, least, static_cast<uint32_t>(least_signed), same, 99, 1u << i}));
    }
  });
}

TEST(Snippets, BarriersInEverySpelling) {
  ForEveryOrder([] {
    const std::vector<uint32_t> in = Lanes(64);
    std::vector<uint32_t> out(64 * 8);
    ASSERT_EQ(RunKernel("barriers", 64, in.data(), out.data()), "");
    for (uint32_t i = 0; i < 64; ++i) {
      EXPECT_EQ(std::vector<uint32_t>(out.begin() + 8 * i, out.begin() + 8 * i + 6),
                (std::vector<uint32_t>{i < 32 ? 0 : 1000 * (i - 32) + in[i - 32], 1, 0, 57, 64, 2}));
    }
  });
}

TEST(Snippets, Atomics) {
  ForEveryOrder([] {
    constexpr uint32_t kThreads = 70;
    const std::vector<uint32_t> in = Lanes(kThreads);
    std::vector<uint32_t> out(16);
    out[3] = out[4] = ~0u;
    uint32_t sum = 0, all = ~0u, any = 0, parity = 0;
    for (const uint32_t v : in) sum += v, all &= v, any |= v, parity ^= v;
    ASSERT_EQ(RunKernel("atomics", kThreads, in.data(), out.data()), "");
    EXPECT_EQ(out[0], sum);
    EXPECT_EQ(out[1], kThreads);
    EXPECT_EQ(out[2], in.back());
    EXPECT_EQ(out[3], in.front());
    EXPECT_EQ(out[4], all);
    EXPECT_EQ(out[5], any);
    EXPECT_EQ(out[6], parity);
    EXPECT_EQ(out[7], kThreads % 7);
    EXPECT_EQ(out[8], 0u);  // 70 steps down, 7 to a round
    EXPECT_EQ(out[9], 5u);
    EXPECT_EQ(std::bit_cast<float>(out[10]), static_cast<float>(sum));
    EXPECT_EQ(out[12], sum);
    EXPECT_EQ(out[14], sum);
    EXPECT_EQ(out[15], sum);
  });
}

// Element (row, column) of matrix m, of the 32 rows of 8 halves.
uint16_t At(const std::vector<uint16_t>& rows, int m, int row, int column) {
  return rows[(8 * m + row) * 8 + column];
}

TEST(Snippets, Matrices) {
  ForEveryOrder([] {
    std::vector<uint16_t> in(256), out(256);
    for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<uint16_t>(i * 37);
    ASSERT_EQ(RunKernel("matrices", 32, in.data(), out.data()), "");
    for (int lane = 0; lane < 32; ++lane) {
      const int g = lane / 4, t = lane % 4;
      for (int i = 0; i < 2; ++i) {
        EXPECT_EQ(out[8 * lane + i], At(in, 0, g, 2 * t + i)) << "ldmatrix";
        EXPECT_EQ(out[8 * lane + 2 + i], At(in, 0, 2 * t + i, g)) << "ldmatrix.trans";
      }
      if (lane >= 16) continue;  // stmatrix.x2.trans: its transpose; the second was transposed twice before
      for (int c = 0; c < 4; ++c) EXPECT_EQ(out[8 * lane + 4 + c], At(in, lane / 8, c, lane % 8)) << "stmatrix.trans";
    }
  });
}

TEST(Snippets, MoreMatrices) {
  ForEveryOrder([] {
    std::vector<uint16_t> in(256), out(32 * 24);
    for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<uint16_t>(i * 37);
    ASSERT_EQ(RunKernel("more_matrices", 32, in.data(), out.data()), "");
    for (int lane = 0; lane < 32; ++lane) {
      const int g = lane / 4, t = lane % 4;
      const uint16_t* const own = &out[24 * lane];
      for (int i = 0; i < 2; ++i) {
        EXPECT_EQ(own[i], At(in, 0, g, 2 * t + i)) << "x1";
        EXPECT_EQ(own[2 + i], At(in, 0, g, 2 * t + i)) << "x2";
        EXPECT_EQ(own[4 + i], At(in, 1, g, 2 * t + i)) << "x2";
      }
      for (int c = 0; c < 8; ++c) {
        EXPECT_EQ(own[8 + c], lane < 8 ? At(in, 0, lane, c) : 0xffff) << "stmatrix.x1";
        EXPECT_EQ(own[16 + c], At(in, lane / 8, lane % 8, c)) << "stmatrix.x4";
      }
    }
  });
}

TEST(Snippets, AsyncCopies) {
  ForEveryOrder([] {
    constexpr uint32_t kThreads = 64;
    const std::vector<uint32_t> in = Lanes(4 * kThreads);
    for (const uint32_t mode : {0u, 1u, 2u, 3u}) {
      std::vector<uint32_t> out(4 * kThreads);
      ASSERT_EQ(RunKernel("async_copies", kThreads, in.data(), out.data(), mode, 16 * kThreads), "");
      for (uint32_t i = 0; i < out.size(); ++i) {
        const uint32_t expected = mode == 0 ? ~0u : mode == 3 && i % 4 != 0 ? 0 : in[i];
        EXPECT_EQ(out[i], expected) << "mode " << mode << ", word " << i;
      }
    }
  });
}

TEST(Snippets, CallsAndMemory) {
  const std::vector<uint32_t> in = Lanes(8);
  std::vector<uint32_t> out(64);
  ASSERT_EQ(RunKernel("calls", 8, in.data(), out.data()), "");
  for (uint32_t i = 0; i < 8; ++i) {
    const uint32_t once = 2 * in[i] + 1, constant = (i % 4 + 1) * 10;
    const uint32_t jump[] = {100, 101, 101, 102};
    EXPECT_EQ(std::vector<uint32_t>(out.begin() + 8 * i, out.begin() + 8 * i + 8),
              (std::vector<uint32_t>{once, 2 * once + 1, ~0u, constant, 'i', 0x3e800000, jump[i % 4], constant}));
  }
}

TEST(Snippets, ThreadsEnd) {
  ForEveryOrder([] {
    std::vector<uint32_t> out(64);
    EXPECT_EQ(RunKernel("ends", 64, nullptr, out.data(), 0), "");
    EXPECT_EQ(out, std::vector<uint32_t>(64, 7));
    std::vector<uint32_t> untouched(64);
    for (int again = 0; again < 2; ++again) {  // stacks that were left in a function are as good as new
      EXPECT_EQ(RunKernel("ends", 64, nullptr, untouched.data(), 1), "");
    }
    EXPECT_EQ(untouched, std::vector<uint32_t>(64));
    EXPECT_THAT(RunKernel("ends", 64, nullptr, untouched.data(), 2), HasSubstr("trap"));
    EXPECT_THAT(RunKernel("ends", 64, nullptr, untouched.data(), 3), HasSubstr("brkpt"));
    EXPECT_THAT(RunKernel("ends", 64, nullptr, untouched.data(), 4), HasSubstr("beyond its targets"));
  });
}

TEST(Snippets, SpecialRegisters) {
  ForEveryOrder([] {
    constexpr uint32_t kX = 5, kY = 4, kZ = 3, kDynamic = 48;
    std::vector<uint32_t> out(kX * kY * kZ * 28);
    const Params params{nullptr, out.data(), 0};
    ASSERT_EQ(RunGrid(*FindKernel("specials"), Launch{{1, 1, 1}, {kX, kY, kZ}, kDynamic},
                      reinterpret_cast<const unsigned char*>(&params)),
              "");
    for (uint32_t i = 0; i < kX * kY * kZ; ++i) {
      const uint32_t lane = i % 32, self = 1u << lane, below = self - 1;
      const std::vector<uint32_t> got(out.begin() + 28 * i, out.begin() + 28 * i + 26);
      EXPECT_EQ(got, (std::vector<uint32_t>{i % kX,
                                            i / kX % kY,
                                            i / (kX * kY),
                                            kX,
                                            kY,
                                            kZ,
                                            0,
                                            0,
                                            0,
                                            1,
                                            1,
                                            1,
                                            lane,
                                            i / 32,
                                            2,
                                            0,
                                            1,
                                            self,
                                            below,
                                            below | self,
                                            ~below,
                                            ~(below | self),
                                            kDynamic,
                                            kDynamic,
                                            32,
                                            1}));
    }
  });
}

std::string Overrun(uint32_t what) {
  uint32_t out[4] = {};
  return RunKernel("overruns", 1, nullptr, out, what, 64);
}

TEST(Snippets, SharedOverruns) {
  EXPECT_EQ(Overrun(0), "");
#if defined(HOST_CUDA_ASAN)
  for (const uint32_t what : {1u, 2u, 3u}) EXPECT_DEATH(Overrun(what), "use-after-poison");
#else
  EXPECT_THAT(Overrun(3), HasSubstr("byte 0 behind first was written"));
#endif
  EXPECT_THAT(Overrun(4), HasSubstr("shared memory overrun: address"));  // past the end: always
  EXPECT_THAT(Overrun(5), HasSubstr("misaligned"));
}

TEST(Snippets, VariablesAreRegistered) {
  const Variable* table = FindVariable("table");
  ASSERT_NE(table, nullptr);
  EXPECT_EQ(table->bytes, 16u);
  EXPECT_EQ(static_cast<const uint32_t*>(table->address)[3], 40u);
  const Kernel* kernel = FindKernel("overruns");
  ASSERT_NE(kernel, nullptr);
  EXPECT_EQ(kernel->static_shared_bytes, 32u);
  EXPECT_EQ(kernel->shared.size(), 2u);
  EXPECT_EQ(kernel->param_bytes, 20u);
  EXPECT_EQ(FindKernel("calls")->local_bytes, 16u);
}

}  // namespace
}  // namespace host_cuda
