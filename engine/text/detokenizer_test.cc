#include "engine/text/detokenizer.h"

#include <map>
#include <memory>

#include "engine/text/testing/random_text.h"
#include "engine/text/testing/small_vocabulary.h"
#include "engine/text/utf8.h"
#include "gtest/gtest.h"

namespace sluice::engine {
namespace {

std::unique_ptr<Tokenizer> MakeTokenizer() {
  return *Tokenizer::Create(SmallVocabulary());
}

bool IsContinuation(const std::string& bytes, size_t at) {
  return at < bytes.size() && (static_cast<uint8_t>(bytes[at]) & 0xC0) == 0x80;
}

// The value that a lead byte with `extra` continuation bytes holds, whether or not it is a legal character.
uint32_t Value(const std::string& bytes, size_t at, size_t extra) {
  uint32_t value = static_cast<uint8_t>(bytes[at]) & (0x3F >> extra);
  for (size_t i = 1; i <= extra; ++i) value = value << 6 | (static_cast<uint8_t>(bytes[at + i]) & 0x3F);
  return value;
}

bool IsLegal(uint32_t value, size_t extra) {
  static constexpr uint32_t kSmallest[] = {0, 0x80, 0x800, 0x10000};
  return value >= kSmallest[extra] && value <= 0x10FFFF && (value < 0xD800 || value > 0xDFFF);
}

// Whether bytes[at, at + have] can be completed to a legal character: tries both ends of what could follow.
bool CanBeCompleted(const std::string& bytes, size_t at, size_t have, size_t extra) {
  for (const char fill : {'\x80', '\xBF'}) {
    const std::string whole = bytes.substr(at, have + 1) + std::string(extra - have, fill);
    if (IsLegal(Value(whole, 0, extra), extra)) return true;
  }
  return false;
}

// Decodes a whole string by the definition: U+FFFD for each longest prefix that could begin a character, or else byte.
std::string NaiveDecode(const std::string& bytes) {
  std::string text;
  for (size_t at = 0; at < bytes.size();) {
    const auto lead = static_cast<uint8_t>(bytes[at]);
    const size_t extra = lead < 0xC0 ? 0 : lead < 0xE0 ? 1 : lead < 0xF0 ? 2 : lead < 0xF8 ? 3 : 0;
    size_t have = 0;
    while (have < extra && IsContinuation(bytes, at + have + 1) && CanBeCompleted(bytes, at, have + 1, extra)) ++have;
    const bool whole = lead < 0x80 || (extra > 0 && have == extra && IsLegal(Value(bytes, at, extra), extra));
    if (whole) {
      text += bytes.substr(at, extra + 1);
    } else {
      text += "\uFFFD";
    }
    at += have + 1;
  }
  return text;
}

std::string Decode(Detokenizer detokenizer, const std::vector<int32_t>& ids) {
  std::string text;
  for (const int32_t id : ids) {
    const std::string piece = detokenizer.Add(id);
    EXPECT_EQ(ValidPrefix(piece), piece.size());
    text += piece;
  }
  return text + detokenizer.Flush();
}

TEST(DetokenizerTest, HoldsACharacterUntilItIsWhole) {
  const auto tokenizer = MakeTokenizer();
  Detokenizer detokenizer(tokenizer.get());
  const auto add = [&](int byte) { return detokenizer.Add(kFirstByte + byte); };
  EXPECT_EQ(add('a'), "a");
  EXPECT_EQ(add(0xF0), "");
  EXPECT_EQ(add(0x9F), "");
  EXPECT_EQ(add(0x98), "");
  EXPECT_EQ(add(0x80), "😀");
  EXPECT_EQ(add(0xE4), "");
  EXPECT_EQ(add('b'), "\uFFFDb");
  EXPECT_EQ(add(0xE4), "");
  EXPECT_EQ(add(0xB8), "");
  EXPECT_EQ(detokenizer.Flush(), "\uFFFD");
  EXPECT_EQ(detokenizer.Flush(), "");
  EXPECT_EQ(add('c'), "c");
}

TEST(DetokenizerTest, ControlTokensYieldNothingOrTheirName) {
  const auto tokenizer = MakeTokenizer();
  const std::vector<int32_t> ids = {1, kFirstByte + 0xC3, 2, kFirstByte + 0xA9, 4, -1, 1 << 30};
  EXPECT_EQ(Decode(Detokenizer(tokenizer.get()), ids), "é<tool>");
  EXPECT_EQ(Decode(Detokenizer(tokenizer.get(), false), ids), "<|im_start|>\uFFFD<|im_end|>\uFFFD<tool>");
}

// Byte by byte is the finest split; tokens of several bytes come with the merges.
TEST(DetokenizerTest, EqualsTheNaiveDecoderOnRandomBytes) {
  const auto tokenizer = MakeTokenizer();
  const uint64_t seed = TestSeed();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  RandomText random(seed);
  for (int i = 0; i < 50000; ++i) {
    const std::string bytes = random.Bytes(12);
    std::vector<int32_t> ids;
    for (const char c : bytes) ids.push_back(kFirstByte + static_cast<uint8_t>(c));
    ASSERT_EQ(Decode(Detokenizer(tokenizer.get()), ids), NaiveDecode(bytes)) << testing::PrintToString(bytes);
  }
}

// A vocabulary of all substrings of one string, so that every way to cut it is a list of ids. User-defined tokens may
// be any bytes.
struct Substrings {
  explicit Substrings(const std::string& bytes) : data(SmallVocabulary()) {
    for (size_t begin = 0; begin < bytes.size(); ++begin) {
      for (size_t length = 1; length <= bytes.size() - begin; ++length) {
        const std::string part = bytes.substr(begin, length);
        if (!ids.emplace(part, static_cast<int32_t>(data.tokens.size())).second) continue;
        data.tokens.push_back(part);
        data.types.push_back(TokenType::kUserDefined);
      }
    }
  }
  TokenizerData data;
  std::map<std::string, int32_t> ids;
};

TEST(DetokenizerTest, AllSplitsGiveTheSameText) {
  const uint64_t seed = TestSeed();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  RandomText random(seed);
  for (int round = 0; round < 60; ++round) {
    const std::string bytes = random.Bytes(9) + "\xF0\x9F";
    const Substrings vocabulary(bytes);
    const absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = Tokenizer::Create(vocabulary.data);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    const std::string expected = NaiveDecode(bytes);
    for (uint32_t cuts = 0; cuts < 1u << (bytes.size() - 1); ++cuts) {
      std::vector<int32_t> ids;
      size_t begin = 0;
      for (size_t end = 1; end <= bytes.size(); ++end) {
        if (end < bytes.size() && (cuts >> (end - 1) & 1) == 0) continue;
        ids.push_back(vocabulary.ids.at(bytes.substr(begin, end - begin)));
        begin = end;
      }
      ASSERT_EQ(Decode(Detokenizer(tokenizer->get()), ids), expected)
          << testing::PrintToString(bytes) << " by " << cuts;
    }
  }
}

}  // namespace
}  // namespace sluice::engine
