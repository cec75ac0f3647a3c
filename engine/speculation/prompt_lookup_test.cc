#include "engine/speculation/prompt_lookup.h"

#include <algorithm>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice::engine {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// The definition: the longest suffix of min..max tokens that occurred before, of its occurrences the most recent.
NgramIndex::Match NaiveFind(const std::vector<int32_t>& t, int min, int max) {
  for (int n = std::min<int>(max, int(t.size()) - 1); n >= min; --n) {
    for (int end = int(t.size()) - 1; end >= n; --end) {
      if (std::equal(t.end() - n, t.end(), t.begin() + end - n)) return {end, n};
    }
  }
  return {};
}

TEST(NgramIndex, FindsWhatASearchFinds) {
  for (int seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    const int min = 1 + int(random() % 3), max = min + int(random() % 4), vocab = 2 + int(random() % 6);
    NgramIndex index(min, max);
    std::vector<int32_t> tokens;
    while (tokens.size() < 150) {
      for (int more = int(random() % 4); more >= 0; --more) tokens.push_back(int32_t(random() % vocab));
      const NgramIndex::Match found = index.Find(tokens), naive = NaiveFind(tokens, min, max);
      ASSERT_EQ(found.next, naive.next) << "seed " << seed << ", " << tokens.size() << " tokens";
      ASSERT_EQ(found.length, naive.length) << "seed " << seed;
    }
  }
}

TEST(NgramIndex, HasNoMatchInShortTexts) {
  NgramIndex index(2, 3);
  EXPECT_EQ(index.Find({}).next, -1);
  EXPECT_EQ(index.Find(std::vector<int32_t>{4}).next, -1);
  EXPECT_EQ(index.Find(std::vector<int32_t>{4, 4}).next, -1);
  EXPECT_EQ(index.Find(std::vector<int32_t>{4, 4, 4}).next, 2) << "4 4, then 4";
}

PromptLookup AlwaysFour() {
  return PromptLookup({.max_drafts = 4, .min_ngram = 2, .max_ngram = 3, .row_cost = 0.0});
}

TEST(PromptLookup, ContinuesTheLongestAndNewestMatch) {
  EXPECT_THAT(AlwaysFour().Draft(std::vector<int32_t>{1, 2, 3, 4, 5, 6, 7, 1, 2, 3}, 4), ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(AlwaysFour().Draft(std::vector<int32_t>{9, 2, 3, 4, 7, 2, 3, 5, 9, 2, 3}, 1), ElementsAre(4))
      << "three tokens beat the newer two";
  EXPECT_THAT(AlwaysFour().Draft(std::vector<int32_t>{2, 3, 4, 7, 2, 3, 5, 9, 2, 3}, 1), ElementsAre(5));
  EXPECT_THAT(AlwaysFour().Draft(std::vector<int32_t>{1, 2, 3, 4, 5, 6}, 4), IsEmpty());
  EXPECT_THAT(AlwaysFour().Draft(std::vector<int32_t>{1, 2, 8, 1, 2}, 0), IsEmpty());
}

TEST(PromptLookup, ALoopGoesOn) {
  EXPECT_THAT(AlwaysFour().Draft(std::vector<int32_t>{5, 1, 2, 1, 2}, 4), ElementsAre(1, 2, 1, 2));
  EXPECT_THAT(AlwaysFour().Draft(std::vector<int32_t>{7, 7, 7, 7}, 4), ElementsAre(7, 7, 7, 7));
}

TEST(DraftLength, GrowsWhereDraftsHold) {
  DraftLength length(8, 0.1);
  EXPECT_GT(length.Next(100), 0);
  for (int i = 0; i < 20; ++i) length.Report(100, length.Next(100), length.Next(100));
  EXPECT_EQ(length.Next(100), 8);
  EXPECT_FALSE(length.pauses(100));
}

// Every draft is refused: the rows that were spent on them, in steps, stay below the promise of the header.
TEST(DraftLength, GivesUpWhereDraftsNeverHold) {
  for (double cost : {0.05, 0.1, 0.2, 0.4}) {
    DraftLength length(8, cost);
    double lost = 0;
    int tries_after_start = 0, pauses = 0;
    bool paused = false;
    for (int position = 0; position < 10000; ++position) {
      const int k = length.Next(position);
      if (k > 0) lost += cost * k;
      if (k > 0 && pauses > 0) {
        EXPECT_EQ(k, 1);
        ++tries_after_start;
      }
      length.Report(position, k, 0);
      pauses += !paused && length.pauses(position + 1);
      paused = length.pauses(position + 1);
      if (pauses == 1 && paused) {
        EXPECT_LT(lost, 1.0) << cost;
      }
      if (position == 200) {
        EXPECT_LE(lost / 200, 0.03) << cost;
      }
    }
    EXPECT_GT(tries_after_start, 10) << "it looks again now and then";
    EXPECT_LT(tries_after_start, 25);
    EXPECT_LE(lost / 10000, 0.003) << cost;
  }
}

TEST(DraftLength, ComesBackWhenDraftsHoldAgain) {
  DraftLength length(8, 0.1);
  int position = 0;
  for (; position < 300; ++position) length.Report(position, length.Next(position), 0);
  int drafted = 0;
  for (; position < 1400; ++position) {
    const int k = length.Next(position);
    length.Report(position, k, k);
    drafted += k;
  }
  EXPECT_EQ(length.Next(position), 8);
  EXPECT_GT(drafted, 1000);
  // A stretch that gained is followed by short pauses.
  while (!length.pauses(position)) length.Report(position, length.Next(position), 0), ++position;
  EXPECT_FALSE(length.pauses(position + 16));
}

TEST(DraftLength, NothingIsNoReport) {
  DraftLength length(8, 0.1);
  const double before = length.acceptance();
  for (int i = 0; i < 100; ++i) length.Report(i, 0, 0);
  EXPECT_EQ(length.acceptance(), before);
}

TEST(DraftLength, DearRowsAreNotWorthIt) {
  DraftLength length(8, 0.1);
  EXPECT_GT(length.Next(0), 0);
  for (double cost : {0.5, 1.0}) {
    length.set_row_cost(cost);
    EXPECT_EQ(length.Next(0), 0);
  }
  length.set_row_cost(0.1);
  EXPECT_GT(length.Next(0), 0);
}

}  // namespace
}  // namespace sluice::engine
