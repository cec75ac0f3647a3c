#include "engine/text/bpe.h"

#include <map>
#include <set>
#include <utility>

#include "engine/text/byte_alphabet.h"
#include "engine/text/testing/random_text.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice::engine {
namespace {

using Pair = std::pair<std::string, std::string>;
using testing::ElementsAre;
using testing::HasSubstr;

std::string Spell(const Pair& merge) {
  return SpellingOfBytes(merge.first) + " " + SpellingOfBytes(merge.second);
}

std::vector<int32_t> Encode(const Bpe& bpe, std::string_view word) {
  std::vector<int32_t> ids;
  bpe.Encode(word, ids);
  return ids;
}

// The definition: while any pair of neighbours is a merge, merge the leftmost of the best.
std::vector<std::string> NaiveMerge(const std::vector<Pair>& merges, const std::set<char>& missing,
                                    const std::string& word) {
  std::vector<std::string> parts;
  for (const char c : word) {
    if (missing.count(c) == 0) parts.emplace_back(1, c);
  }
  while (true) {
    size_t best = merges.size();
    size_t at = 0;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      for (size_t rank = 0; rank < best; ++rank) {
        if (merges[rank] != Pair{parts[i], parts[i + 1]}) continue;
        best = rank;
        at = i;
      }
    }
    if (best == merges.size()) return parts;
    parts[at] += parts[at + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
}

// Bytes "a", "b", "\xC3", a space, and random merges of what is there so far. Different merges may have one result.
struct RandomVocabulary {
  explicit RandomVocabulary(RandomText& random) {
    if (random.Int(0, 3) == 0) missing.insert('b');
    std::vector<std::string> tokens;
    const auto add = [&](const std::string& token) {
      if (ids.emplace(token, static_cast<int32_t>(ids.size())).second) tokens.push_back(token);
    };
    for (const char c : {'a', 'b', '\xC3', ' '}) {
      if (missing.count(c) == 0) add(std::string(1, c));
    }
    std::set<Pair> seen;
    for (int n = random.Int(0, 25); n > 0; --n) {
      const int last = static_cast<int>(tokens.size()) - 1;
      const Pair merge(tokens[random.Int(0, last)], tokens[random.Int(0, last)]);
      if (!seen.insert(merge).second) continue;
      merges.push_back(merge);
      add(merge.first + merge.second);
    }
    for (const Pair& merge : merges) spelled.push_back(Spell(merge));
  }
  Bpe::Vocabulary ids;
  std::vector<Pair> merges;
  std::vector<std::string> spelled;
  std::set<char> missing;
};

TEST(BpeTest, EqualsTheNaiveMerge) {
  const uint64_t seed = TestSeed();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  RandomText random(seed);
  for (int round = 0; round < 400; ++round) {
    const RandomVocabulary vocabulary(random);
    const absl::StatusOr<Bpe> bpe = Bpe::Create(vocabulary.ids, vocabulary.spelled, false);
    ASSERT_TRUE(bpe.ok()) << bpe.status();
    for (int i = 0; i < 100; ++i) {
      std::string word;
      for (int n = random.Int(0, 24); n > 0; --n) word.push_back("aab\xC3 "[random.Int(0, 4)]);
      std::vector<int32_t> expected;
      for (const std::string& part : NaiveMerge(vocabulary.merges, vocabulary.missing, word)) {
        expected.push_back(vocabulary.ids.at(part));
      }
      ASSERT_EQ(Encode(*bpe, word), expected) << word << " with " << testing::PrintToString(vocabulary.merges);
    }
  }
}

const Bpe::Vocabulary kAbc = {{"a", 0}, {"b", 1}, {"c", 2}, {"ab", 3}, {"bc", 4}, {"abc", 5}};

TEST(BpeTest, RankDecidesAndThenTheLeftmost) {
  const absl::StatusOr<Bpe> bpe = Bpe::Create(kAbc, std::vector<std::string>{"b c", "a b"}, false);
  ASSERT_TRUE(bpe.ok()) << bpe.status();
  EXPECT_THAT(Encode(*bpe, "abc"), ElementsAre(0, 4));
  EXPECT_THAT(Encode(*bpe, "abab"), ElementsAre(3, 3));
}

TEST(BpeTest, AWordThatIsATokenIsThatTokenOnlyIfMergesAreIgnored) {
  const std::vector<std::string> merges = {"b c", "a b"};  // nothing merges into "abc"
  const absl::StatusOr<Bpe> merging = Bpe::Create(kAbc, merges, false);
  const absl::StatusOr<Bpe> ignoring = Bpe::Create(kAbc, merges, true);
  ASSERT_TRUE(merging.ok() && ignoring.ok());
  EXPECT_THAT(Encode(*merging, "abc"), ElementsAre(0, 4));
  EXPECT_THAT(Encode(*ignoring, "abc"), ElementsAre(5));
  EXPECT_THAT(Encode(*ignoring, "abca"), ElementsAre(0, 4, 0));
}

TEST(BpeTest, BytesWithoutATokenAreLeftOutBeforeMerging) {
  const absl::StatusOr<Bpe> bpe = Bpe::Create(kAbc, std::vector<std::string>{"a b"}, false);
  ASSERT_TRUE(bpe.ok());
  EXPECT_THAT(Encode(*bpe, "azb"), ElementsAre(3));
  EXPECT_THAT(Encode(*bpe, "z"), ElementsAre());
  EXPECT_THAT(Encode(*bpe, ""), ElementsAre());
  EXPECT_TRUE(bpe->HasByte('a'));
  EXPECT_FALSE(bpe->HasByte('z'));
}

TEST(BpeTest, DamagedMergesAreNamed) {
  for (const auto& [merge, what] : std::map<std::string, std::string>{{"a x", "\"x\" is not a token"},
                                                                      {"Ġ a", "\"Ġ\" is not a token"},
                                                                      {"中 a", "\"中\" is not a token"},
                                                                      {"c a", "result is not a token"},
                                                                      {"ab", "not two tokens"},
                                                                      {"a b c", "not two tokens"},
                                                                      {" a", "not two tokens"},
                                                                      {"a ", "not two tokens"},
                                                                      {"", "not two tokens"}}) {
    const absl::Status status = Bpe::Create(kAbc, std::vector<std::string>{"a b", merge}, false).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("merge 1 \"" + merge + "\""));
    EXPECT_THAT(std::string(status.message()), HasSubstr(what));
  }
}

// Would not end in time if merging were quadratic.
TEST(BpeTest, AWordOfAMegabyte) {
  const absl::StatusOr<Bpe> bpe =
      Bpe::Create({{"a", 0}, {"aa", 1}, {"aaaa", 2}}, std::vector<std::string>{"a a", "aa aa"}, false);
  ASSERT_TRUE(bpe.ok());
  const std::vector<int32_t> ids = Encode(*bpe, std::string((1 << 20) + 3, 'a'));
  ASSERT_EQ(ids.size(), (1u << 18) + 2);
  EXPECT_EQ(ids.front(), 2);
  EXPECT_THAT(std::vector<int32_t>(ids.end() - 3, ids.end()), ElementsAre(2, 1, 0));
}

}  // namespace
}  // namespace sluice::engine
