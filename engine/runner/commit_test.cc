#include "engine/runner/commit.h"

#include <vector>

#include "gtest/gtest.h"

namespace sluice::engine {
namespace {

constexpr int kVocab = 4, kContext = 100;

Sequence Make(int prompt, SamplingParams sampling) {
  Sequence s;
  s.tokens.assign(prompt, 0);
  s.num_prompt_tokens = prompt;
  s.sampling = std::move(sampling);
  return s;
}

// One step that computes all the sequence lacks, with `token` the best of the logits.
TokenOutput Step(Sequence& s, int token, int max_context = kContext) {
  std::vector<float> logits(kVocab, 0.0f);
  logits[token] = 5.0f;
  const std::vector<TokenOutput> out = Commit({{&s, s.computed, s.remaining(), true}}, logits, kVocab, max_context);
  EXPECT_EQ(out.size(), 1u);
  return out.at(0);
}

TEST(Commit, AppendsTheTokenAndCounts) {
  Sequence s = Make(3, {.max_tokens = 2});
  s.id = 9;
  s.choice = 4;
  const TokenOutput first = Step(s, 2);
  EXPECT_EQ(first.id, 9u);
  EXPECT_EQ(first.choice, 4);
  EXPECT_EQ(first.index, 0);
  EXPECT_EQ(first.sampled.token, 2);
  EXPECT_EQ(first.finish, FinishReason::kNone);
  EXPECT_EQ(s.tokens, (std::vector<int32_t>{0, 0, 0, 2}));
  EXPECT_EQ(s.computed, 3);
  EXPECT_EQ(s.remaining(), 1);
  const TokenOutput second = Step(s, 1);
  EXPECT_EQ(second.index, 1);
  EXPECT_EQ(second.finish, FinishReason::kLength);
}

TEST(Commit, ChunksThatDoNotSampleTakeNoRowOfLogits) {
  Sequence a = Make(6, {.max_tokens = 9}), b = Make(2, {.max_tokens = 9});
  std::vector<float> logits = {0, 0, 0, 1};
  const auto out = Commit({{&a, 0, 4, false}, {&b, 0, 2, true}}, logits, kVocab, kContext);
  ASSERT_EQ(out.size(), 1u);
  EXPECT_EQ(out[0].sampled.token, 3);
  EXPECT_EQ(a.computed, 4);
  EXPECT_EQ(a.tokens.size(), 6u);
  EXPECT_EQ(b.tokens.size(), 3u);
}

TEST(Commit, EosStopIdsAndLength) {
  const SamplingParams p{.max_tokens = 3, .eos_ids = {1}, .stop_ids = {2}};
  Sequence eos = Make(1, p), stop = Make(1, p), both = Make(1, p);
  EXPECT_EQ(Step(eos, 1).finish, FinishReason::kStop);
  EXPECT_EQ(Step(stop, 2).finish, FinishReason::kStop);
  Step(both, 0);
  Step(both, 0);
  EXPECT_EQ(Step(both, 1).finish, FinishReason::kStop);  // an end at the last token is an end
}

TEST(Commit, IgnoreEosSparesStopIds) {
  Sequence s = Make(1, {.max_tokens = 9, .ignore_eos = true, .eos_ids = {1}, .stop_ids = {2}});
  EXPECT_EQ(Step(s, 1).finish, FinishReason::kNone);
  EXPECT_EQ(Step(s, 2).finish, FinishReason::kStop);
}

TEST(Commit, MinTokensHoldsTheEndBack) {
  Sequence s = Make(1, {.max_tokens = 9, .min_tokens = 2, .eos_ids = {1}});
  EXPECT_EQ(Step(s, 1).sampled.token, 0);
  EXPECT_EQ(Step(s, 1).sampled.token, 0);
  EXPECT_EQ(Step(s, 1).finish, FinishReason::kStop);
  Sequence all = Make(1, {.max_tokens = 9, .min_tokens = 1, .stop_ids = {0, 1, 2, 3}});
  EXPECT_EQ(Step(all, 1).finish, FinishReason::kNone);
  EXPECT_EQ(Step(all, 1).finish, FinishReason::kStop);
}

TEST(Commit, TheContextEndsASequence) {
  Sequence s = Make(3, {.max_tokens = 9});
  EXPECT_EQ(Step(s, 2, 5).finish, FinishReason::kNone);
  EXPECT_EQ(Step(s, 2, 5).finish, FinishReason::kLength);
}

TEST(Commit, TheDrawIsKeyedByTheIndexInPromptAndAnswer) {
  const SamplingParams p{.temperature = 1.0f, .seed = 5, .max_tokens = 8};
  Sequence s = Make(7, p);
  s.choice = 3;
  for (int i = 0; i < 8; ++i) {
    std::vector<float> logits(kVocab, 0.0f), same = logits;
    const int32_t token = Commit({{&s, s.computed, s.remaining(), true}}, logits, kVocab, kContext).at(0).sampled.token;
    EXPECT_EQ(token, Sample(same, p, {.seed = 5, .choice = 3, .position = 7 + i}, i).token);
  }
}

TEST(Commit, AReplayGoesOnCountingAndDrawsTheSame) {
  const SamplingParams p{.temperature = 1.0f, .seed = 5, .max_tokens = 6};
  const auto flat_step = [](Sequence& s) {
    std::vector<float> logits(kVocab, 0.0f);
    return Commit({{&s, s.computed, s.remaining(), true}}, logits, kVocab, kContext).at(0);
  };
  Sequence whole = Make(3, p);
  for (int i = 0; i < 6; ++i) flat_step(whole);
  for (int cut = 1; cut < 6; ++cut) {
    Sequence replay = Make(3, p);
    replay.tokens.assign(whole.tokens.begin(), whole.tokens.begin() + 3 + cut);
    EXPECT_EQ(flat_step(replay).index, cut);
    while (replay.generated() < 6) flat_step(replay);
    EXPECT_EQ(replay.tokens, whole.tokens);
  }
}

}  // namespace
}  // namespace sluice::engine
