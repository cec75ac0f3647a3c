#include "engine/speculation/verify_drafts.h"

#include <cmath>
#include <random>
#include <vector>

#include "engine/sampler_draw.h"
#include "engine/testing/exact_sampling.h"
#include "gtest/gtest.h"

namespace sluice::engine {
namespace {

// A model whose logits are a function of the last two tokens.
class TinyTarget {
 public:
  TinyTarget(int vocab, uint64_t seed) : vocab_(vocab), seed_(seed) {}

  std::vector<float> Row(std::span<const int32_t> tokens) const {
    const uint32_t last = uint32_t(tokens.back()), before = tokens.size() > 1 ? uint32_t(tokens[tokens.size() - 2]) : 0;
    std::mt19937 random(uint32_t(seed_ * 1000003 + last * 7919 + before * 104729));
    std::vector<float> row(vocab_);
    for (float& x : row) x = float(random() % 1000) / 250.0f;
    return row;
  }
  std::vector<float> Rows(std::vector<int32_t> tokens, const std::vector<int32_t>& drafts) const {
    std::vector<float> rows = Row(tokens);
    for (int32_t draft : drafts) {
      tokens.push_back(draft);
      const std::vector<float> row = Row(tokens);
      rows.insert(rows.end(), row.begin(), row.end());
    }
    return rows;
  }

 private:
  int vocab_;
  uint64_t seed_;
};

struct Answer {
  std::vector<int32_t> tokens;
  std::vector<Sampled> sampled;
  int steps = 0;
};

// draft(tokens) -> drafts. The counts are the sequence's own, or rebuilt for every step, as after a replay.
template <typename Drafter>
Answer Generate(const TinyTarget& target, const std::vector<int32_t>& prompt, const SamplingParams& params, int choice,
                bool rebuild, Drafter draft) {
  Answer answer{prompt, {}, 0};
  TokenCounts own(prompt, int(prompt.size()));
  while (true) {
    const std::vector<int32_t> drafts = draft(answer.tokens);
    std::vector<float> rows = target.Rows(answer.tokens, drafts);
    TokenCounts rebuilt(answer.tokens, int(prompt.size()));
    const int generated = int(answer.tokens.size() - prompt.size());
    const auto tokens = VerifyDrafts(rows, drafts, params, {params.seed, choice, int(answer.tokens.size())}, generated,
                                     rebuild ? &rebuilt : &own);
    ++answer.steps;
    for (const Sampled& s : tokens) {
      answer.tokens.push_back(s.token);
      answer.sampled.push_back(s);
    }
    if (FinishAfter(params, answer.tokens.back(), int(answer.tokens.size() - prompt.size())) != FinishReason::kNone) {
      return answer;
    }
  }
}

std::vector<int32_t> NoDrafts(const std::vector<int32_t>&) {
  return {};
}

// Drafts that are right, wrong, out of the vocabulary, too long: never another token, never another log-probability.
TEST(VerifyDrafts, TokensDoNotDependOnTheDrafts) {
  int steps_with = 0, steps_without = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    std::mt19937 random{uint32_t(seed)};
    const auto chance = [&](int one_in) { return random() % one_in == 0; };
    const int vocab = 2 + int(random() % 12);
    const TinyTarget target(vocab, seed);
    SamplingParams params;
    params.temperature = chance(4) ? 0.0f : 0.8f;
    if (chance(3)) params.top_k = 3;
    if (chance(3)) params.top_p = 0.8f;
    if (chance(4)) params.min_p = 0.1f;
    if (chance(2)) params.repetition_penalty = 1.5f;
    if (chance(2)) params.presence_penalty = 0.7f;
    if (chance(2)) params.frequency_penalty = 0.6f;
    if (chance(3)) params.logit_bias = {{1, 0.5f}};
    params.logprobs = chance(2) ? 2 : -1;
    params.seed = seed;
    params.max_tokens = 1 + int(random() % 40);
    params.min_tokens = int(random() % params.max_tokens);
    params.eos_ids = {0};
    params.ignore_eos = chance(2);
    const std::vector<int32_t> prompt = {1, 0, 1, 1};
    const Answer alone = Generate(target, prompt, params, 2, false, NoDrafts);
    const bool rebuild = chance(2);
    const Answer drafted = Generate(target, prompt, params, 2, rebuild, [&](const std::vector<int32_t>& tokens) {
      std::vector<int32_t> drafts;
      const size_t count = random() % 6;
      for (size_t i = tokens.size(); drafts.size() < count; ++i) {
        const bool right = i < alone.tokens.size() && !chance(4);
        drafts.push_back(right ? alone.tokens[i] : int32_t(random() % vocab));
      }
      return drafts;
    });
    ASSERT_EQ(drafted.tokens, alone.tokens) << "seed " << seed;
    for (size_t i = 0; i < alone.sampled.size(); ++i) {
      EXPECT_EQ(drafted.sampled[i].logprob, alone.sampled[i].logprob) << "seed " << seed;
      EXPECT_EQ(drafted.sampled[i].top, alone.sampled[i].top) << "seed " << seed;
    }
    steps_with += drafted.steps;
    steps_without += alone.steps;
  }
  EXPECT_LT(steps_with * 3, steps_without * 2) << "drafts were accepted";
}

TEST(VerifyDrafts, StopsAfterTheTokenThatEndsTheAnswer) {
  SamplingParams params{.max_tokens = 9, .eos_ids = {2}};
  std::vector<float> rows = {0, 1, 0, 0, 0, 1, 1, 0, 0, 0, 1, 0};  // 1, then 2, then 0
  const std::vector<int32_t> drafts = {1, 2, 0};
  auto tokens = VerifyDrafts(rows, drafts, params, {}, 0, nullptr);
  ASSERT_EQ(tokens.size(), 2u);
  EXPECT_EQ(tokens[1].token, 2);
  EXPECT_EQ(AcceptedDrafts(tokens, drafts), 2);
  params = {.max_tokens = 5};
  EXPECT_EQ(VerifyDrafts(rows, drafts, params, {}, 2, nullptr).size(), 3u) << "the length ends it";
  tokens = VerifyDrafts(rows, drafts, {.max_tokens = 100}, {}, 0, nullptr);
  ASSERT_EQ(tokens.size(), 4u);
  EXPECT_EQ(tokens[3].token, 1);
  EXPECT_EQ(AcceptedDrafts(tokens, drafts), 3);
}

// min_tokens masks by the tokens that the row would have seen: the draft before it counts.
TEST(VerifyDrafts, MinTokensCountsAcceptedDrafts) {
  const SamplingParams params{.max_tokens = 9, .min_tokens = 1, .eos_ids = {2}};
  std::vector<float> rows = {0, 1, 5, 0, 1, 5};
  const auto tokens = VerifyDrafts(rows, std::vector<int32_t>{1}, params, {}, 0, nullptr);
  ASSERT_EQ(tokens.size(), 2u);
  EXPECT_EQ(tokens[0].token, 1) << "masked";
  EXPECT_EQ(tokens[1].token, 2) << "no longer masked";
}

// The counts that come back are those of the returned tokens, so that the next step goes on with them.
TEST(VerifyDrafts, CountsWhatItReturnsAndNoMore) {
  TokenCounts counts(std::vector<int32_t>{0}, 1);
  std::vector<float> rows = {0, 1, 0, 0, 0, 1, 0, 0, 1};
  VerifyDrafts(rows, std::vector<int32_t>{1, 0}, {.frequency_penalty = 0.1f, .max_tokens = 9}, {}, 0, &counts);
  EXPECT_EQ(counts.occurrences(), TokenCounts(std::vector<int32_t>{0, 1, 2}, 1).occurrences());
  EXPECT_EQ(counts.counted(), 3);
}

// A drafter whose draw shares the key agrees with the target more often than one with noise of its own.
TEST(VerifyDrafts, SharedNoiseRaisesAcceptance) {
  const std::vector<float> target = {0.0f, 1.0f, 0.5f, -0.5f}, near = {0.2f, 0.7f, 0.6f, -0.3f};
  const SamplingParams params{.temperature = 1.0f, .max_tokens = 1 << 30};
  std::vector<float> scratch = near;
  const std::vector<double> q = Distribution(scratch, params, 0);
  int shared = 0, independent = 0;
  constexpr int kRounds = 20000;
  for (int i = 0; i < kRounds; ++i) {
    std::vector<float> rows = target, draft_row = near;
    const int32_t token = VerifyDrafts(rows, {}, params, {17, 0, i}, 0, nullptr)[0].token;
    shared += Sample(draft_row, params, {17, 0, i}, 0).token == token;
    independent += DrawFrom(q, {17, 0, uint32_t(i), RandomPurpose::kDraft}) == token;
  }
  EXPECT_GT(shared, kRounds * 0.8);
  EXPECT_LT(independent, kRounds * 0.5);
}

}  // namespace
}  // namespace sluice::engine
