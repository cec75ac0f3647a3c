#include "kernels/cpu/isa.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice::kernels::cpu {
namespace {

constexpr CpuFeatures kOld{.fma_avx2_f16c = false, .avx512 = false};
constexpr CpuFeatures kPlain{.fma_avx2_f16c = true, .avx512 = false};
constexpr CpuFeatures kWide{.fma_avx2_f16c = true, .avx512 = true};

TEST(Isa, AutoTakesTheBest) {
  EXPECT_EQ(*ChooseIsa(CpuIsa::kAuto, kPlain, nullptr), CpuIsa::kAvx2);
  EXPECT_EQ(*ChooseIsa(CpuIsa::kAuto, kWide, nullptr), CpuIsa::kAvx512);
  EXPECT_EQ(*ChooseIsa(CpuIsa::kAuto, kWide, ""), CpuIsa::kAvx512);
}

TEST(Isa, TheVariableDecidesForAutoOnly) {
  EXPECT_EQ(*ChooseIsa(CpuIsa::kAuto, kWide, "scalar"), CpuIsa::kScalar);
  EXPECT_EQ(*ChooseIsa(CpuIsa::kAuto, kWide, "avx2"), CpuIsa::kAvx2);
  EXPECT_EQ(*ChooseIsa(CpuIsa::kAvx512, kWide, "avx2"), CpuIsa::kAvx512);
  const auto unknown = ChooseIsa(CpuIsa::kAuto, kWide, "sse9");
  EXPECT_EQ(unknown.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(unknown.status().message()), testing::HasSubstr("sse9"));
}

TEST(Isa, RefusesWhatTheCpuLacks) {
  for (const CpuIsa asked : {CpuIsa::kAuto, CpuIsa::kScalar, CpuIsa::kAvx2}) {
    EXPECT_EQ(ChooseIsa(asked, kOld, nullptr).status().code(), absl::StatusCode::kFailedPrecondition);
  }
  EXPECT_EQ(ChooseIsa(CpuIsa::kAvx512, kPlain, nullptr).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ChooseIsa(CpuIsa::kAuto, kPlain, "avx512").status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(Isa, BackendRefusesSillyThreadCounts) {
  EXPECT_EQ(NewCpuBackend({.threads = 0}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(NewCpuBackend({.threads = 1 << 20}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(Isa, BackendRefusesKvTypesThatTheModeLacks) {
  using enum CpuCompute;
  EXPECT_TRUE(NewCpuBackend({.compute = kInt8, .kv = KvDType::kInt8}).ok());
  EXPECT_TRUE(NewCpuBackend({.compute = kInt8, .kv = KvDType::kBF16}).ok());
  EXPECT_TRUE(NewCpuBackend({.compute = kF32, .kv = KvDType::kF32}).ok());
  for (const CpuOptions& options :
       {CpuOptions{.compute = kF32, .kv = KvDType::kInt8}, CpuOptions{.compute = kF32, .kv = KvDType::kBF16},
        CpuOptions{.compute = kInt8, .kv = KvDType::kF32}}) {
    EXPECT_EQ(NewCpuBackend(options).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace sluice::kernels::cpu
