#include "engine/sequence_table.h"

#include <cmath>
#include <functional>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice::engine {
namespace {

using testing::HasSubstr;

constexpr SequenceLimits kLimits{.block_size = 4, .num_blocks = 10, .max_context = 64, .vocab = 20};

EngineRequest Request(uint64_t id, int prompt, int max_tokens) {
  EngineRequest r;
  r.id = id;
  r.tokens.assign(prompt, 3);
  r.num_prompt_tokens = prompt;
  r.sampling.max_tokens = max_tokens;
  return r;
}

TEST(SequenceTable, ReservesPromptPlusMaxTokensAndFreesThemAll) {
  SequenceTable table(kLimits, {});
  ASSERT_TRUE(table.Add(Request(1, 5, 4)).ok());  // 9 tokens: 3 blocks
  EXPECT_EQ(table.unpromised_blocks(), 7);
  ASSERT_TRUE(table.Add(Request(2, 4, 4)).ok());
  EXPECT_EQ(table.unpromised_blocks(), 5);
  EXPECT_TRUE(table.Remove(1));
  EXPECT_FALSE(table.Remove(1));
  EXPECT_TRUE(table.Remove(2));
  EXPECT_EQ(table.unpromised_blocks(), 10);
  EXPECT_TRUE(table.empty());
}

TEST(SequenceTable, NotNowIsNotNever) {
  SequenceTable table(kLimits, {});
  ASSERT_TRUE(table.Add(Request(1, 20, 12)).ok());  // 8 blocks
  const absl::Status not_now = table.Add(Request(2, 8, 4));
  EXPECT_EQ(not_now.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(not_now.message()), HasSubstr("3 KV blocks are needed; 2 of 10 are free"));
  EXPECT_EQ(table.unpromised_blocks(), 2);
  const absl::Status never = table.Add(Request(3, 30, 11));
  EXPECT_EQ(never.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(never.message()), HasSubstr("41 tokens"));
  table.Remove(1);
  EXPECT_TRUE(table.Add(Request(2, 8, 4)).ok());
}

TEST(SequenceTable, AReplayReservesWhatTheOriginalDid) {
  SequenceTable table(kLimits, {});
  EngineRequest r = Request(1, 9, 4);
  r.num_prompt_tokens = 6;  // 3 tokens were generated already; 6 + 4 tokens in all
  ASSERT_TRUE(table.Add(r).ok());
  EXPECT_EQ(table.unpromised_blocks(), 7);
  r.id = 2;
  r.sampling.max_tokens = 3;
  const absl::Status nothing_left = table.Add(r);
  EXPECT_EQ(nothing_left.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(nothing_left.message()), HasSubstr("3 generated tokens"));
}

TEST(SequenceTable, MalformedRequestsNameTheFieldAndChangeNothing) {
  struct Case {
    std::string in_message;
    std::function<void(EngineRequest&)> spoil;
  };
  const Case cases[] = {
      {"tokens is empty", [](auto& r) { r.tokens.clear(); }},
      {"num_prompt_tokens is 0", [](auto& r) { r.num_prompt_tokens = 0; }},
      {"num_prompt_tokens is 6", [](auto& r) { r.num_prompt_tokens = 6; }},
      {"tokens[2] is 20", [](auto& r) { r.tokens[2] = 20; }},
      {"tokens[0] is -1", [](auto& r) { r.tokens[0] = -1; }},
      {"exceed the context of 64", [](auto& r) { r.sampling.max_tokens = 60; }},
      {"exceed the context of 64", [](auto& r) { r.sampling.max_tokens = 2147483647; }},
      {"id 1 is alive", [](auto& r) { r.id = 1; }},
      {"n is 0", [](auto& r) { r.n = 0; }},
      {"n is 65", [](auto& r) { r.n = 65; }},
      {"headroom_tokens is -1", [](auto& r) { r.headroom_tokens = -1; }},
      {"max_tokens is 0", [](auto& r) { r.sampling.max_tokens = 0; }},
      {"temperature is -1", [](auto& r) { r.sampling.temperature = -1; }},
      {"temperature is nan", [](auto& r) { r.sampling.temperature = NAN; }},
      {"temperature is inf", [](auto& r) { r.sampling.temperature = INFINITY; }},
      {"top_p is 0", [](auto& r) { r.sampling.top_p = 0; }},
      {"top_p is nan", [](auto& r) { r.sampling.top_p = NAN; }},
      {"top_p is 1.5", [](auto& r) { r.sampling.top_p = 1.5; }},
      {"top_k is -1", [](auto& r) { r.sampling.top_k = -1; }},
      {"min_p is nan", [](auto& r) { r.sampling.min_p = NAN; }},
      {"logprobs is -2", [](auto& r) { r.sampling.logprobs = -2; }},
      {"min_tokens is -1", [](auto& r) { r.sampling.min_tokens = -1; }},
      {"min_tokens is 5", [](auto& r) { r.sampling.min_tokens = 5; }},
  };
  SequenceTable table(kLimits, {});
  ASSERT_TRUE(table.Add(Request(1, 1, 1)).ok());
  for (const Case& c : cases) {
    EngineRequest r = Request(2, 5, 4);
    c.spoil(r);
    const absl::Status status = table.Add(r);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.in_message;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.in_message));
    EXPECT_EQ(table.unpromised_blocks(), 9);
  }
}

TEST(SequenceTable, WhoMayWaitIsOnlyRefusedWhatNeverFits) {
  SequenceTable table(kLimits, {});
  for (uint64_t id = 1; id <= 5; ++id) {
    EngineRequest r = Request(id, 20, 12);
    r.may_wait = true;
    ASSERT_TRUE(table.Add(r).ok());
  }
  EXPECT_EQ(table.unpromised_blocks(), 0);
  EXPECT_EQ(table.scheduler().waiting(), 5);
  EngineRequest r = Request(6, 30, 11);
  r.may_wait = true;
  EXPECT_EQ(table.Add(r).code(), absl::StatusCode::kFailedPrecondition);
}

TEST(SequenceTable, HeadroomPromisesLess) {
  SequenceTable table(kLimits, {});
  EngineRequest r = Request(1, 8, 30);
  r.headroom_tokens = 4;
  ASSERT_TRUE(table.Add(r).ok());
  EXPECT_EQ(table.unpromised_blocks(), 7);
}

TEST(SequenceTable, ForksAreCountedOnceForTheFullBlocksOfThePrompt) {
  SequenceTable table(kLimits, {});
  EngineRequest r = Request(1, 9, 3);  // 3 blocks, of which 2 are shared
  r.n = 4;
  ASSERT_TRUE(table.Add(r).ok());
  EXPECT_EQ(table.unpromised_blocks(), 10 - (3 + 3 * 1));
}

TEST(SequenceTable, ChoicesThatNeverFitTogetherAreRefusedForEver) {
  SequenceTable table(kLimits, {});
  EngineRequest r = Request(1, 9, 3);  // 3 blocks, and one more a choice
  r.n = 8;
  ASSERT_TRUE(table.Add(r).ok());
  r.id = 2;
  EXPECT_EQ(table.Add(r).code(), absl::StatusCode::kResourceExhausted) << "not now";
  r.n = 9;
  const absl::Status never = table.Add(r);
  EXPECT_EQ(never.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(never.message()), HasSubstr("n: 9 choices"));
  EXPECT_THAT(std::string(never.message()), HasSubstr("need 11 KV blocks together; the pool has 10"));
  r.may_wait = true;
  EXPECT_TRUE(table.Add(r).ok()) << "they take turns";
}

TEST(SequenceTable, AParkingSequenceHoldsTheBlocksOfItsTokens) {
  SequenceTable table(kLimits, {});
  EngineRequest r = Request(1, 8, 30);
  r.park_after_first = true;
  ASSERT_TRUE(table.Add(r).ok());
  EXPECT_EQ(table.unpromised_blocks(), 8);
  EXPECT_FALSE(table.scheduler().Plan().empty());
  EXPECT_EQ(table.Find(1)->blocks.size(), 2u);
  EXPECT_TRUE(table.Park(1));
  EXPECT_TRUE(table.scheduler().empty());
  EXPECT_EQ(table.unpromised_blocks(), 8);
  EXPECT_TRUE(table.Remove(1));
  EXPECT_EQ(table.unpromised_blocks(), 10);
  EXPECT_FALSE(table.Park(1));
}

TEST(SequenceTable, AnAwaitingSequenceIsScheduledOnceItIsActivated) {
  SequenceTable table(kLimits, {});
  EngineRequest r = Request(1, 8, 5);
  r.awaiting_kv = true;
  ASSERT_TRUE(table.Add(r).ok());
  EXPECT_EQ(table.Find(1)->blocks.size(), 2u);
  EXPECT_EQ(table.unpromised_blocks(), 6);
  EXPECT_TRUE(table.scheduler().empty());
  const auto activate = [&](uint64_t id, std::vector<FirstToken> firsts) { return table.Activate(id, firsts).code(); };
  EXPECT_EQ(activate(1, {{0, 20}}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(activate(1, {{0, -1}}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(activate(1, {{1, 3}}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(activate(1, {{0, 3}, {0, 3}}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(activate(1, {}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(activate(2, {{0, 3}}), absl::StatusCode::kNotFound);
  EXPECT_TRUE(table.scheduler().empty());
  ASSERT_EQ(activate(1, {{0, 7}}), absl::StatusCode::kOk);
  const StepPlan plan = table.scheduler().Plan();
  ASSERT_EQ(plan.chunks.size(), 1u);
  EXPECT_EQ(plan.chunks[0].begin, 8);
  EXPECT_EQ(plan.chunks[0].count, 1);
  EXPECT_EQ(plan.chunks[0].sequence->tokens.back(), 7);
  EXPECT_EQ(plan.chunks[0].sequence->generated(), 1);
  EXPECT_TRUE(table.Remove(1));
  EXPECT_EQ(table.unpromised_blocks(), 10);
}

TEST(SequenceTable, AnAwaitingRequestGoesOnInTheChoicesThatAreNotOver) {
  SequenceTable table(kLimits, {});
  EngineRequest r = Request(1, 6, 5);
  r.awaiting_kv = true;
  r.n = 3;
  ASSERT_TRUE(table.Add(r).ok());
  const FirstToken firsts[] = {{1, 4}, {2, 5}};  // choice 0 ended with its first token
  ASSERT_TRUE(table.Activate(1, firsts).ok());
  const StepPlan plan = table.scheduler().Plan();
  ASSERT_EQ(plan.chunks.size(), 2u);
  EXPECT_EQ(plan.chunks[0].sequence->choice, 1);
  EXPECT_EQ(plan.chunks[0].sequence->tokens.back(), 4);
  EXPECT_EQ(plan.chunks[1].sequence->choice, 2);
  EXPECT_EQ(plan.copies.size(), 1u) << "the last holder of the partial block writes into it";
  EXPECT_TRUE(table.Remove(1));
  EXPECT_TRUE(table.scheduler().empty());
}

// What the next request finds of the ones before it, where it is put in at admission.
TEST(SequenceTable, ALeaseHoldsTheCachedPrefix) {
  SequenceLimits limits = kLimits;
  limits.num_blocks = 20;
  SequenceTable table(limits, {});
  EngineRequest r = Request(1, 8, 5);
  r.awaiting_kv = true;
  ASSERT_TRUE(table.Add(r).ok());
  const FirstToken first{0, 7};
  ASSERT_TRUE(table.Activate(1, {&first, 1}).ok());
  r.id = 2;
  ASSERT_TRUE(table.Add(r).ok());
  EXPECT_EQ(table.Find(2)->hit_tokens, 4) << "the last token's block always comes anew";
  EXPECT_EQ(table.Find(2)->blocks[0], table.Find(1)->blocks[0]);
  r.id = 3;
  r.cache_salt = "another tenant";
  ASSERT_TRUE(table.Add(r).ok());
  EXPECT_EQ(table.Find(3)->hit_tokens, 0);
}

}  // namespace
}  // namespace sluice::engine
