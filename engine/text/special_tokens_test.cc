#include "engine/text/special_tokens.h"

#include <string>
#include <vector>

#include "engine/text/testing/random_text.h"
#include "gtest/gtest.h"

namespace sluice::engine {
namespace {

TEST(SpecialTokensTest, LeftmostThenLongest) {
  SpecialTokens tokens;
  EXPECT_TRUE(tokens.Add("<a>", 1));
  EXPECT_TRUE(tokens.Add("<a>b", 2));
  EXPECT_TRUE(tokens.Add("a>bc", 3));
  EXPECT_FALSE(tokens.Add("<a>", 4));
  const auto match = tokens.Find("x<a>bc", 0);
  ASSERT_TRUE(match.has_value());
  EXPECT_EQ(match->begin, 1u);
  EXPECT_EQ(match->length, 4u);
  EXPECT_EQ(match->id, 2);
  EXPECT_EQ(tokens.Find("x<a>bc", 2)->id, 3);
  EXPECT_FALSE(tokens.Find("x<a>bc", 3).has_value());
  EXPECT_FALSE(tokens.Find("<a", 0).has_value());
  EXPECT_FALSE(tokens.Find("", 0).has_value());
}

TEST(SpecialTokensTest, EqualsTheNaiveSearch) {
  const uint64_t seed = TestSeed();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  RandomText random(seed);
  const auto word = [&](int min, int max) {
    std::string text;
    for (int n = random.Int(min, max); n > 0; --n) text.push_back("ab\xFF"[random.Int(0, 2)]);
    return text;
  };
  int found = 0;
  for (int i = 0; i < 20000; ++i) {
    SpecialTokens tokens;
    std::vector<std::string> names;
    for (int n = random.Int(0, 5); n > 0; --n) {
      const std::string name = word(1, 6);
      if (tokens.Add(name, static_cast<int32_t>(names.size()))) names.push_back(name);
    }
    const std::string text = word(0, 20);
    const size_t from = random.Int(0, static_cast<int>(text.size()));
    int best = -1;
    size_t begin = from;
    for (; begin < text.size() && best < 0; ++begin) {
      for (size_t id = 0; id < names.size(); ++id) {
        if (text.compare(begin, names[id].size(), names[id]) != 0) continue;
        if (best < 0 || names[id].size() > names[best].size()) best = static_cast<int>(id);
      }
    }
    const auto match = tokens.Find(text, from);
    ASSERT_EQ(match.has_value(), best >= 0);
    if (!match.has_value()) continue;
    ++found;
    ASSERT_EQ(match->id, best);
    ASSERT_EQ(match->begin, begin - 1);
    ASSERT_EQ(match->length, names[best].size());
  }
  EXPECT_GT(found, 5000);
}

}  // namespace
}  // namespace sluice::engine
