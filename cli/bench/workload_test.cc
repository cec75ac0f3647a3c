#include "cli/bench/workload.h"

#include <algorithm>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice::cli::bench {
namespace {

constexpr TokenRange kTokens{500, 40000};

TEST(WorkloadTest, LengthsAreReadOrNamed) {
  EXPECT_EQ(ParseLengths("128", "--input-tokens")->mean, 128);
  EXPECT_EQ(ParseLengths("128:32", "--input-tokens")->range, 32);
  for (const char* bad : {"", "0", "x", "1:1", "5:-1", "1:2:3", "128:"}) {
    EXPECT_THAT(std::string(ParseLengths(bad, "--input-tokens").status().message()),
                testing::HasSubstr("--input-tokens"))
        << bad;
  }
}

TEST(WorkloadTest, ExactLengthsWithinTheRange) {
  const auto requests = MakeRandom({{100, 20}, {16, 4}}, 500, kTokens, 8192, 1);
  ASSERT_TRUE(requests.ok());
  std::set<size_t> lengths;
  for (const PlannedRequest& request : *requests) {
    lengths.insert(request.prompt.size());
    EXPECT_TRUE(request.max_tokens >= 12 && request.max_tokens <= 20);
    for (const int32_t id : request.prompt) EXPECT_TRUE(id >= kTokens.first && id < kTokens.end);
  }
  EXPECT_EQ(*lengths.begin(), 80u);
  EXPECT_EQ(*lengths.rbegin(), 120u);
  EXPECT_EQ((*MakeRandom({{100, 20}, {16, 4}}, 500, kTokens, 8192, 1))[499].prompt, requests->back().prompt);
  EXPECT_NE((*MakeRandom({{100, 20}, {16, 4}}, 500, kTokens, 8192, 2))[499].prompt, requests->back().prompt);
}

TEST(WorkloadTest, PrefixesAreSharedAndNothingElseIs) {
  const auto requests = MakeRandom({{32, 0}, {4, 0}, 64, 3}, 60, kTokens, 0, 9);
  ASSERT_TRUE(requests.ok());
  std::set<std::vector<int32_t>> prefixes, rests;
  for (const PlannedRequest& request : *requests) {
    ASSERT_EQ(request.prompt.size(), 96u);
    prefixes.emplace(request.prompt.begin(), request.prompt.begin() + 64);
    rests.emplace(request.prompt.begin() + 64, request.prompt.end());
  }
  EXPECT_EQ(prefixes.size(), 3u);
  EXPECT_EQ(rests.size(), 60u);
}

TEST(WorkloadTest, WhatDoesNotFitIsNamed) {
  EXPECT_FALSE(MakeRandom({{100, 0}, {29, 0}}, 1, kTokens, 128, 1).ok());
  EXPECT_TRUE(MakeRandom({{100, 0}, {28, 0}}, 1, kTokens, 128, 1).ok());
}

TEST(WorkloadTest, ATraceKeepsPrefixesAndArrivals) {
  const std::vector<simulation::TraceRequest> trace = {
      {0, 1200, 80, {1, 2, 3}}, {4, 1300, 1, {1, 2, 4}}, {6, 90000, 8000, {1, 9}}, {7, 5, 5, {}}};
  const TraceWorkload workload = MakeFromTrace(trace, 3, 8, 2, kTokens, 1024, 5);
  ASSERT_EQ(workload.requests.size(), 3u);
  EXPECT_EQ(workload.at_s, (std::vector<double>{0, 2, 3}));
  const auto& a = workload.requests[0].prompt;
  const auto& b = workload.requests[1].prompt;
  ASSERT_EQ(a.size(), 150u);
  ASSERT_EQ(b.size(), 162u);
  EXPECT_TRUE(std::equal(a.begin(), a.begin() + 128, b.begin())) << "two blocks of 512 / 8 tokens";
  EXPECT_FALSE(std::equal(a.begin() + 128, a.begin() + 140, b.begin() + 128));
  EXPECT_EQ(workload.requests[0].max_tokens, 10);
  EXPECT_EQ(workload.requests[1].max_tokens, 2) << "so that there is a pace";
  EXPECT_EQ(workload.cut, 1);
  EXPECT_LE(workload.requests[2].prompt.size() + size_t(workload.requests[2].max_tokens), 1024u);
}

TEST(WorkloadTest, SmallVocabulariesAreUsedWhole) {
  EXPECT_EQ(OrdinaryTokens(49152).first, 500);
  EXPECT_EQ(OrdinaryTokens(300).first, 3);
  EXPECT_EQ(OrdinaryTokens(1).first, 0);
}

}  // namespace
}  // namespace sluice::cli::bench
