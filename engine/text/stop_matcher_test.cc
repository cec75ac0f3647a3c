#include "engine/text/stop_matcher.h"

#include <algorithm>

#include "engine/text/testing/random_text.h"
#include "engine/text/utf8.h"
#include "gtest/gtest.h"

namespace sluice::engine {
namespace {

using Strings = std::vector<std::string>;

struct Outcome {
  std::string text;
  bool stopped = false;
  bool operator==(const Outcome&) const = default;
};

// In the whole text: the stop string that ends first, the longest of those.
Outcome Naive(const Strings& stops, const std::string& text) {
  for (size_t end = 1; end <= text.size(); ++end) {
    size_t longest = 0;
    for (const std::string& stop : stops) {
      if (!stop.empty() && stop.size() <= end && text.compare(end - stop.size(), stop.size(), stop) == 0) {
        longest = std::max(longest, stop.size());
      }
    }
    if (longest > 0) return {text.substr(0, end - longest), true};
  }
  return {text, false};
}

Outcome Match(const Strings& stops, const Strings& pieces) {
  StopMatcher matcher(stops);
  Outcome outcome;
  for (const std::string& piece : pieces) {
    const StopMatcher::Result result = matcher.Add(piece);
    outcome.text += result.text;
    EXPECT_EQ(ValidPrefix(result.text), result.text.size());
    EXPECT_FALSE(outcome.stopped && (!result.stopped || !result.text.empty()));  // once stopped, stopped and silent
    outcome.stopped = result.stopped;
  }
  outcome.text += matcher.Flush();
  return outcome;
}

TEST(StopMatcherTest, TextIsHeldOnlyWhileItMayBecomeAStop) {
  StopMatcher matcher({"###", "\nUser:"});
  EXPECT_EQ(matcher.Add("Hi#").text, "Hi");
  EXPECT_EQ(matcher.Add("#").text, "");
  EXPECT_EQ(matcher.Add("a\nUs").text, "##a");
  EXPECT_EQ(matcher.Add("e").text, "");
  EXPECT_EQ(matcher.Add("d #").text, "\nUsed ");
  const StopMatcher::Result last = matcher.Add("##tail");
  EXPECT_EQ(last.text, "");
  EXPECT_TRUE(last.stopped);
  EXPECT_TRUE(matcher.Add("more").stopped);
  EXPECT_EQ(matcher.Add("more").text, "");
  EXPECT_EQ(matcher.Flush(), "");
}

TEST(StopMatcherTest, FlushReturnsWhatWasHeld) {
  StopMatcher matcher({"<end>"});
  EXPECT_EQ(matcher.Add("x<en").text, "x");
  EXPECT_EQ(matcher.Flush(), "<en");
}

TEST(StopMatcherTest, WithoutStopsNothingIsHeld) {
  for (const Strings& stops : {Strings{}, Strings{"", ""}}) {
    StopMatcher matcher(stops);
    EXPECT_EQ(matcher.Add("any é").text, "any é");
    EXPECT_EQ(matcher.Flush(), "");
  }
}

TEST(StopMatcherTest, TheEarliestCompleteStopWinsThenTheLongest) {
  EXPECT_EQ(Match({"abcd", "bc"}, {"xabcd"}), (Outcome{"xa", true}));
  EXPECT_EQ(Match({"cd", "abcd"}, {"xabcd"}), (Outcome{"x", true}));
  EXPECT_EQ(Match({"aab"}, {"a", "a", "a", "b", "c"}), (Outcome{"a", true}));
  EXPECT_EQ(Match({"abab!", "b"}, {"a", "bab!"}), (Outcome{"a", true}));
}

TEST(StopMatcherTest, StopsAndTextOfSeveralBytesPerCharacter) {
  EXPECT_EQ(Match({"終わり"}, {"ここで終", "わ", "り。"}), (Outcome{"ここで", true}));
  // The stop begins inside a character of the text: the part before it can't be shown.
  EXPECT_EQ(Match({"\xBB\xAD"}, {"a\xE7\xBB\xAD"}), (Outcome{"a", true}));
}

TEST(StopMatcherTest, EqualsTheNaiveSearchHoweverTheTextIsCut) {
  const uint64_t seed = TestSeed();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  RandomText random(seed);
  const auto word = [&](int min, int max) {
    static constexpr const char* kLetters[] = {"a", "b", "é", "\u00EA", "中"};  // two share their first byte
    std::string text;
    for (int n = random.Int(min, max); n > 0; --n) text += kLetters[random.Int(0, random.Int(1, 4))];
    return text;
  };
  int stopped = 0;
  for (int i = 0; i < 30000; ++i) {
    Strings stops;
    for (int n = random.Int(0, 4); n > 0; --n) stops.push_back(word(0, 6));
    const std::string text = word(0, 30);
    const Outcome expected = Naive(stops, text);
    ASSERT_EQ(Match(stops, random.Split(text)), expected) << testing::PrintToString(stops) << " in " << text;
    stopped += expected.stopped;
  }
  EXPECT_GT(stopped, 3000);
  EXPECT_LT(stopped, 29000);
}

TEST(StopMatcherTest, AllSplitsOfOneText) {
  const Strings stops = {"aba", "ab!", "é!"};
  for (const std::string text : {"xaabaé", "ab ab!x", "aéé!", "abab"}) {
    const Outcome expected = Naive(stops, text);
    for (uint32_t cuts = 0; cuts < 1u << (text.size() - 1); ++cuts) {
      Strings pieces(1);
      for (size_t i = 0; i < text.size(); ++i) {
        pieces.back().push_back(text[i]);
        if (i + 1 < text.size() && (cuts >> i & 1) != 0) pieces.emplace_back();
      }
      ASSERT_EQ(Match(stops, pieces), expected) << text << " cut by " << cuts;
    }
  }
}

}  // namespace
}  // namespace sluice::engine
