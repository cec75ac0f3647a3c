#include "engine/kv_blocks.h"

#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice::engine {
namespace {

using testing::ElementsAre;

Sequence Make(int tokens, int first = 0) {
  Sequence s;
  for (int i = 0; i < tokens; ++i) s.tokens.push_back(first + i);
  s.num_prompt_tokens = tokens;
  s.sample = std::make_shared<SampleState>(SamplingParams{.max_tokens = 1000}, 0, s.tokens, tokens);
  return s;
}

// As the scheduler and the commit do it with one token.
void WriteToken(KvBlocks& kv, Sequence& s, std::vector<BlockCopy>& copies) {
  ASSERT_TRUE(kv.Extend(s, s.scheduled + 1, copies));
  s.computed = ++s.scheduled;
  s.tokens.push_back(7);
  kv.StoreComputed(s);
}

// A prompt of 100 tokens, 4 answers of 60, blocks of 16: 40 blocks each for itself, 22 shared, with 3 copies. The numbers
// are those of the vLLM paper's way of counting (Kwon et al. 2023, copy on write), worked out by hand:
// 6 full blocks shared + 4 x (10 - 6) of their own.
TEST(KvBlocks, FourAnswersToOnePromptShareItsBlocks) {
  for (const bool shared : {false, true}) {
    KvBlocks kv(64, 16, /*prefix_caching=*/false);
    std::vector<BlockCopy> copies;
    std::vector<Sequence> answers;
    for (int i = 0; i < 4; ++i) answers.push_back(Make(100));
    for (int i = 0; i < 4; ++i) {
      if (i == 0 || !shared) {
        ASSERT_TRUE(kv.Admit(answers[size_t(i)], 100, 0));
      } else {
        kv.Share(answers[0], 100, answers[size_t(i)]);
      }
      answers[size_t(i)].computed = answers[size_t(i)].scheduled = 100;
    }
    EXPECT_EQ(kv.total() - kv.free(), shared ? 7 : 28);
    for (int t = 0; t < 60; ++t) {
      for (Sequence& s : answers) WriteToken(kv, s, copies);
    }
    kv.StepBegun(1);
    kv.StepDone(1);
    EXPECT_EQ(kv.total() - kv.free(), shared ? 22 : 40);
    EXPECT_EQ(copies.size(), shared ? 3u : 0u);
    EXPECT_EQ(kv.copies(), copies.size());
    for (Sequence& s : answers) kv.Release(s);
    EXPECT_EQ(kv.free(), 64);
  }
}

TEST(KvBlocks, AdmissionFindsTheCachedPrefixButComputesTheLastToken) {
  KvBlocks kv(8, 4, true);
  Sequence a = Make(8);
  ASSERT_TRUE(kv.Admit(a, 8, 0));
  EXPECT_EQ(a.computed, 0);
  a.computed = a.scheduled = 8;
  kv.StoreComputed(a);
  Sequence same = Make(8), longer = Make(9), other = Make(8, 1);
  ASSERT_TRUE(kv.Admit(same, 8, 0));
  EXPECT_EQ(same.computed, 4) << "the last block is computed again, for the logits of its last token";
  EXPECT_EQ(same.blocks[0], a.blocks[0]);
  EXPECT_NE(same.blocks[1], a.blocks[1]);
  ASSERT_TRUE(kv.Admit(longer, 9, 0));
  EXPECT_EQ(longer.computed, 8);
  ASSERT_TRUE(kv.Admit(other, 8, 0));
  EXPECT_EQ(other.computed, 0);
  EXPECT_EQ(kv.cache().stats().hit_tokens, 12u);
  EXPECT_EQ(kv.cache().stats().looked_up_tokens, 33u);
  for (Sequence* s : {&a, &same, &longer, &other}) kv.Release(*s);
  EXPECT_EQ(kv.free(), 8);
}

TEST(KvBlocks, ARefusedAdmissionChangesNothing) {
  KvBlocks kv(4, 4, true);
  Sequence a = Make(8);
  ASSERT_TRUE(kv.Admit(a, 8, 0));
  a.computed = a.scheduled = 8;
  kv.StoreComputed(a);
  kv.Release(a);
  Sequence big = Make(17), kept_free = Make(9);
  EXPECT_FALSE(kv.Admit(big, 17, 0));
  EXPECT_FALSE(kv.Admit(kept_free, 9, 2));
  EXPECT_TRUE(big.blocks.empty());
  EXPECT_EQ(kv.free(), 4);
  EXPECT_EQ(kv.cache().stored(), 2) << "nothing was evicted for it";
  EXPECT_TRUE(kv.Admit(kept_free, 9, 1));
}

TEST(KvBlocks, WhatAStepMayStillUseComesBackAfterIt) {
  KvBlocks kv(4, 4, false);
  Sequence a = Make(8), b = Make(3);
  ASSERT_TRUE(kv.Admit(a, 8, 0));
  kv.StepBegun(1);
  kv.Release(a);
  EXPECT_EQ(kv.free(), 2);
  EXPECT_EQ(kv.returning(), 2);
  kv.StepBegun(2);
  kv.StepDone(1);
  EXPECT_EQ(kv.free(), 4);
  EXPECT_EQ(kv.returning(), 0);

  // The source of a copy is read by the step that is being planned.
  ASSERT_TRUE(kv.Admit(b, 3, 0));
  b.computed = b.scheduled = 3;
  Sequence fork = Make(3);
  kv.Share(b, 3, fork);
  fork.computed = fork.scheduled = 3;
  std::vector<BlockCopy> copies;
  ASSERT_TRUE(kv.Extend(fork, 4, copies));
  ASSERT_EQ(copies.size(), 1u);
  kv.Release(b);  // its last step, 2, is still under way
  kv.StepBegun(3);
  kv.StepDone(2);
  EXPECT_EQ(kv.returning(), 1);
  EXPECT_EQ(kv.free(), 2);
  kv.StepDone(3);
  EXPECT_EQ(kv.free(), 3);
}

TEST(KvBlocks, ShrinkGivesBackWhatDraftsTook) {
  KvBlocks kv(8, 4, false);
  Sequence a = Make(4);
  std::vector<BlockCopy> copies;
  ASSERT_TRUE(kv.Admit(a, 4, 0));
  a.scheduled = 4;
  ASSERT_TRUE(kv.Extend(a, 13, copies));
  EXPECT_EQ(a.blocks.size(), 4u);
  kv.Shrink(a, 5);
  EXPECT_EQ(a.blocks.size(), 2u);
  EXPECT_EQ(kv.free(), 6);
  EXPECT_FALSE(kv.Extend(a, 33, copies)) << "all or nothing";
  EXPECT_EQ(a.blocks.size(), 2u);
}

}  // namespace
}  // namespace sluice::engine
