#include "engine/token_counts.h"

#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice::engine {
namespace {

using testing::Pair;
using testing::UnorderedElementsAre;

TEST(TokenCounts, CountsTheAnswerAndKnowsThePrompt) {
  const TokenCounts counts(std::vector<int32_t>{5, 5, 6, 7, 5, 7, 8}, 4);
  EXPECT_THAT(counts.occurrences(), UnorderedElementsAre(Pair(5, 1), Pair(6, 0), Pair(7, 1), Pair(8, 1)));
  EXPECT_EQ(counts.counted(), 7);
  EXPECT_TRUE(TokenCounts().occurrences().empty());
}

// However it comes to its tokens (one by one, in pieces, at once after a replay), it has the same counts.
TEST(TokenCounts, IsAFunctionOfTheTokens) {
  for (int seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    std::vector<int32_t> tokens(random() % 100);
    for (int32_t& t : tokens) t = int32_t(random() % 20);
    const int prompt = tokens.empty() ? 0 : int(random() % (tokens.size() + 1));
    const TokenCounts at_once(tokens, prompt);
    TokenCounts in_pieces;
    for (int end = 0; end <= int(tokens.size()); end += 1 + int(random() % 7)) {
      in_pieces.CatchUp(std::span(tokens).first(end), prompt);
      if (end >= prompt && end < int(tokens.size()) && random() % 2) in_pieces.Add(tokens[end]);
      if (in_pieces.counted() > end) ++end;
    }
    in_pieces.CatchUp(tokens, prompt);
    EXPECT_EQ(in_pieces.occurrences(), at_once.occurrences()) << "seed " << seed;
    EXPECT_EQ(in_pieces.counted(), int(tokens.size()));
  }
}

}  // namespace
}  // namespace sluice::engine
