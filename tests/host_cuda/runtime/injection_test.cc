#include "tests/host_cuda/runtime/injection.h"

#include <gtest/gtest.h>

namespace host_cuda {
namespace {

TEST(FailurePlan, FailsTheCallsThatItNames) {
  FailurePlan plan;
  ASSERT_EQ(plan.Set("cudaMalloc:3=cudaErrorMemoryAllocation,launch:2+=cudaErrorLaunchFailure"), "");
  EXPECT_EQ(plan.Next({"cudaMalloc"}), std::nullopt);
  EXPECT_EQ(plan.Next({"cudaFree"}), std::nullopt);
  EXPECT_EQ(plan.Next({"cudaMalloc"}), std::nullopt);
  EXPECT_EQ(plan.Next({"cudaMalloc"}), "cudaErrorMemoryAllocation");
  EXPECT_EQ(plan.Next({"cudaMalloc"}), std::nullopt);
  EXPECT_EQ(plan.Next({"launch"}), std::nullopt);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(plan.Next({"launch"}), "cudaErrorLaunchFailure");
}

TEST(FailurePlan, ChoosesByKernelSizeAndDevice) {
  FailurePlan plan;
  ASSERT_EQ(plan.Set("launch/Sample@1:1=kill,cudaMalloc/1000:2=cudaErrorMemoryAllocation"), "");
  EXPECT_EQ(plan.Next({.name = "launch", .detail = "_Z6SampleRow", .device = 0}), std::nullopt);
  EXPECT_EQ(plan.Next({.name = "launch", .detail = "_Z6Attention", .device = 1}), std::nullopt);
  EXPECT_EQ(plan.Next({.name = "launch", .detail = "_Z6SampleRow", .device = 1}), "kill");
  EXPECT_EQ(plan.Next({.name = "launch", .detail = "_Z6SampleRow", .device = 1}), std::nullopt);
  EXPECT_EQ(plan.Next({.name = "cudaMalloc", .bytes = 1000}), std::nullopt);
  EXPECT_EQ(plan.Next({.name = "cudaMalloc", .bytes = 999}), std::nullopt);
  EXPECT_EQ(plan.Next({.name = "cudaMalloc", .bytes = 1001}), "cudaErrorMemoryAllocation");
}

TEST(FailurePlan, RefusesWhatItDoesNotUnderstand) {
  FailurePlan plan;
  EXPECT_NE(plan.Set("cudaMalloc"), "");
  EXPECT_NE(plan.Set("cudaMalloc:x=cudaErrorUnknown"), "");
  EXPECT_NE(plan.Set("cudaMalloc:0=cudaErrorUnknown"), "");
  EXPECT_NE(plan.Set("cudaMalloc:3x=cudaErrorUnknown"), "");
  EXPECT_NE(plan.Set("cudaMalloc@x:3=cudaErrorUnknown"), "");
  EXPECT_EQ(plan.Set(""), "");
}

}  // namespace
}  // namespace host_cuda
