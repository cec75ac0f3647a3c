#include "simulation/trace.h"

#include <gtest/gtest.h>

#include <sstream>

namespace sluice::simulation {
namespace {

absl::StatusOr<std::vector<TraceRequest>> Read(const std::string& text) {
  std::istringstream in(text);
  return ReadTrace(in);
}

TEST(TraceTest, MooncakeAndAzure) {
  const auto mooncake = Read(
      "{\"timestamp\": 1500, \"input_length\": 600, \"output_length\": 7, \"hash_ids\": [4, 9]}\n"
      "{\"timestamp\": 1000, \"input_length\": 5, \"output_length\": 0, \"hash_ids\": [1]}\n");
  ASSERT_TRUE(mooncake.ok()) << mooncake.status();
  ASSERT_EQ(mooncake->size(), 2u);
  EXPECT_EQ((*mooncake)[0].prompt_tokens, 5) << "by time";
  EXPECT_EQ((*mooncake)[0].answer_tokens, 1) << "the least that one can ask for";
  EXPECT_DOUBLE_EQ((*mooncake)[1].at_s, 0.5);
  EXPECT_EQ((*mooncake)[1].blocks, (std::vector<uint64_t>{4, 9}));

  const auto azure = Read(
      "TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:17:03.9799600,4808,10\r\n"
      "2023-11-16 18:17:04.0319600,3180,8\r\n");
  ASSERT_TRUE(azure.ok()) << azure.status();
  EXPECT_NEAR((*azure)[1].at_s, 0.052, 1e-6);
  EXPECT_EQ((*azure)[0].prompt_tokens, 4808);
  EXPECT_TRUE((*azure)[0].blocks.empty());
}

TEST(TraceTest, WhatIsNoTraceIsNamed) {
  for (const char* text : {"", "nonsense\n", "{\"timestamp\": 1}\n", "2023-11-16 18:17:04,x,8\n",
                           "{\"timestamp\": 1, \"input_length\": 5, \"output_length\": 2, \"hash_ids\": [-1]}\n"}) {
    EXPECT_FALSE(Read(text).ok()) << text;
  }
  EXPECT_EQ(ReadTraceFile("/nonexistent").status().code(), absl::StatusCode::kNotFound);
}

TEST(TraceTest, ThoseOfTheRepository) {
  for (const char* name : {"azure2023_code_2000.csv", "azure2023_conv_2000.csv", "mooncake_conversation_2000.jsonl",
                           "mooncake_synthetic_2000.jsonl"}) {
    const auto trace = ReadTraceFile(std::string("bench/traces/") + name);
    ASSERT_TRUE(trace.ok()) << trace.status();
    EXPECT_EQ(trace->size(), 2000u) << name;
    for (const TraceRequest& request : *trace) {
      if (request.blocks.empty()) continue;
      ASSERT_EQ(int(request.blocks.size()), (request.prompt_tokens + kTraceBlock - 1) / kTraceBlock) << name;
    }
  }
}

}  // namespace
}  // namespace sluice::simulation
