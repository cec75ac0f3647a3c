// mbarriers, from testing/mbarrier.ptx.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

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

std::string RunKernel(const char* name, uint32_t threads, const void* in, void* out, uint32_t mode = 0) {
  const Params params{in, out, mode};
  return RunGrid(*FindKernel(name), Launch{{1, 1, 1}, {threads, 1, 1}, 0},
                 reinterpret_cast<const unsigned char*>(&params));
}

std::vector<uint32_t> Words(uint32_t n) {
  std::vector<uint32_t> words(n);
  for (uint32_t i = 0; i < n; ++i) words[i] = 5 * i + 3;
  return words;
}

TEST(Mbarrier, EachPhaseWaitsForAll) {
  for (const uint32_t threads : {1u, 33u, 100u, 256u}) {
    ForEveryOrder([=] {
      const std::vector<uint32_t> in = Words(threads);
      std::vector<uint32_t> out(2 * threads);
      ASSERT_EQ(RunKernel("rounds", threads, in.data(), out.data()), "");
      for (uint32_t i = 0; i < threads; ++i) {
        const uint32_t next = in[(i + 1) % threads];
        EXPECT_EQ(out[2 * i], next);
        EXPECT_EQ(out[2 * i + 1], next + 1000);
      }
    });
  }
}

TEST(Mbarrier, CountsWhatIsPending) {
  std::vector<uint32_t> out(10);
  ASSERT_EQ(RunKernel("counts", 1, nullptr, out.data()), "");
  // 4, less 2: 2 left; less 1, one of which drops out: the phase ends, and the next expects 3.
  EXPECT_EQ(out, (std::vector<uint32_t>{4, 2, 0, 1, 1, 1, 0, 3, 1, 1}));
}

TEST(Mbarrier, WaitsForCopies) {
  for (const uint32_t threads : {1u, 64u, 200u}) {
    ForEveryOrder([=] {
      const std::vector<uint32_t> in = Words(4 * threads);
      for (const uint32_t mode : {0u, 1u, 2u}) {
        if (mode == 2 && threads != 1) continue;  // a race between threads, which TSan would report
        std::vector<uint32_t> out(4 * threads);
        ASSERT_EQ(RunKernel("copies", threads, in.data(), out.data(), mode), "");
        for (uint32_t i = 0; i < out.size(); ++i) {
          ASSERT_EQ(out[i], mode == 2 ? ~0u : in[(i + 4) % in.size()]) << "mode " << mode << ", word " << i;
        }
      }
    });
  }
}

std::string Misuse(uint32_t what) {
  return RunKernel("misuses", 1, nullptr, nullptr, what);
}

TEST(Mbarrier, MisusesAreReported) {
  EXPECT_EQ(Misuse(0), "");
  EXPECT_THAT(Misuse(1), HasSubstr("was not initialised"));
  EXPECT_THAT(Misuse(2), HasSubstr("mbarrier.init of one that is in use"));
  EXPECT_THAT(Misuse(3), HasSubstr("3 arrivals at an mbarrier that waits for 2"));
  EXPECT_THAT(Misuse(4), HasSubstr("must not be"));
  EXPECT_THAT(Misuse(5), HasSubstr("with a count of 0"));
  EXPECT_THAT(Misuse(6), HasSubstr("misaligned"));
  EXPECT_THAT(Misuse(7), HasSubstr("ended 2 phases ago"));
  EXPECT_THAT(Misuse(8), HasSubstr("was not initialised"));
}

}  // namespace
}  // namespace host_cuda
