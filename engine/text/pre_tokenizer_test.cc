#include "engine/text/pre_tokenizer.h"

#include <string>
#include <thread>
#include <vector>

#include "engine/text/testing/random_text.h"
#include "engine/text/utf8.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice::engine {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Words = std::vector<std::string>;

Words Split(const PreTokenizer& pre_tokenizer, std::string_view text) {
  Words words;
  pre_tokenizer.Split(text, [&](std::string_view word) { words.emplace_back(word); });
  return words;
}

Words Split(std::string_view name, std::string_view text) {
  absl::StatusOr<PreTokenizer> pre_tokenizer = PreTokenizer::Create(name);
  EXPECT_TRUE(pre_tokenizer.ok()) << pre_tokenizer.status();
  return Split(*pre_tokenizer, text);
}

// The expected words are what PyPI `tokenizers` 0.23.3 gives (pre_tokenize_str) for the pre_tokenizer sections of the
// models' tokenizer.json files.
TEST(PreTokenizerTest, Gpt2) {
  EXPECT_THAT(Split("gpt-2", "I'll go  12345 x2!\n\n ok  "),
              ElementsAre("I", "'ll", " go", " ", " 12345", " x", "2", "!", "\n\n", " ok", "  "));
  EXPECT_THAT(Split("gpt-2", "IT'S \t\r\nnow"), ElementsAre("IT", "'", "S", " \t\r", "\n", "now"));
}

TEST(PreTokenizerTest, SmolLmSplitsDigitsFirst) {
  EXPECT_THAT(Split("smollm", "a  12 ٣½ x2"), ElementsAre("a", "  ", "1", "2", " ", "٣", "½", " x", "2"));
  EXPECT_THAT(Split("smollm", " \n 7"), ElementsAre(" \n ", "7"));
}

TEST(PreTokenizerTest, Llama3) {
  EXPECT_THAT(Split("llama-bpe", "IT'S 12345 (x)  \n\n  y!\n z  "),
              ElementsAre("IT", "'S", " ", "123", "45", " (", "x", ")", "  \n\n", " ", " y", "!\n", " z", "  "));
}

TEST(PreTokenizerTest, Qwen2) {
  EXPECT_THAT(Split("qwen2", "I'm 123"), ElementsAre("I", "'m", " ", "1", "2", "3"));
}

TEST(PreTokenizerTest, DeepSeek3) {
  EXPECT_THAT(Split("deepseek-v3", "f(x)=12345 ひらがな中文é!\n"),
              ElementsAre("f", "(x", ")=", "123", "45", " ", "ひらがな中文", "é", "!\n"));
}

TEST(PreTokenizerTest, SpacesAreUnicodes) {
  EXPECT_THAT(Split("gpt-2", "a\u00A0\u3000\u2028b"), ElementsAre("a", "\u00A0\u3000", "\u2028", "b"));
  EXPECT_THAT(Split("gpt-2", "a \u180Eb"), ElementsAre("a", " \u180E", "b"));  // not a space since Unicode 6.3
}

TEST(PreTokenizerTest, OnlyLlama3IgnoresMerges) {
  EXPECT_TRUE(PreTokenizer::Create("llama-bpe")->ignore_merges());
  EXPECT_FALSE(PreTokenizer::Create("smollm")->ignore_merges());
}

TEST(PreTokenizerTest, AnUnknownNameIsNamedWithTheKnownOnes) {
  const absl::Status status = PreTokenizer::Create("tekken").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()), HasSubstr("\"tekken\""));
  EXPECT_THAT(std::string(status.message()), HasSubstr("smollm"));
  EXPECT_EQ(PreTokenizer::Create("").status().code(), absl::StatusCode::kUnimplemented);
}

TEST(PreTokenizerTest, BytesThatAreNotUtf8AreWordsOfTheirOwn) {
  EXPECT_THAT(Split("gpt-2", "ab\xFFto\xE4\xB8 c\xF0"), ElementsAre("ab", "\xFF", "to", "\xE4", "\xB8", " c", "\xF0"));
}

TEST(PreTokenizerTest, NoByteIsLostAndNoCharacterIsCut) {
  const uint64_t seed = TestSeed();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  RandomText random(seed);
  for (const char* const name : {"gpt-2", "smollm", "llama-bpe", "qwen2", "deepseek-v3"}) {
    const absl::StatusOr<PreTokenizer> pre_tokenizer = PreTokenizer::Create(name);
    ASSERT_TRUE(pre_tokenizer.ok());
    for (int i = 0; i < 3000; ++i) {
      const std::string text = random.Utf8(20) + random.Bytes(5) + random.Utf8(5);
      std::string joined;
      for (const std::string& word : Split(*pre_tokenizer, text)) {
        ASSERT_FALSE(word.empty());
        ASSERT_TRUE(word.size() == 1 || ValidPrefix(word) == word.size()) << testing::PrintToString(text);
        joined += word;
      }
      ASSERT_EQ(joined, text);
    }
  }
}

// Would not end in time if a step were quadratic; a match limit that is hit would show as a word too long.
TEST(PreTokenizerTest, RunsOfAMegabyte) {
  constexpr size_t kLength = 1 << 20;
  for (const char* const name : {"gpt-2", "smollm", "llama-bpe", "qwen2", "deepseek-v3"}) {
    const absl::StatusOr<PreTokenizer> pre_tokenizer = PreTokenizer::Create(name);
    ASSERT_TRUE(pre_tokenizer.ok());
    const std::string letters(kLength, 'x');
    const std::string spaces(kLength, ' ');
    EXPECT_THAT(Split(*pre_tokenizer, letters), ElementsAre(letters)) << name;
    EXPECT_THAT(Split(*pre_tokenizer, spaces), ElementsAre(spaces)) << name;
    EXPECT_THAT(Split(*pre_tokenizer, spaces + letters), ElementsAre(spaces.substr(1), " " + letters)) << name;
    EXPECT_EQ(Split(*pre_tokenizer, std::string(kLength, '\xFF')).size(), kLength) << name;
    for (const char* const piece : {"a ", "1", "\n ", "!", "'s", "中", " 1", "\xC3\xA9\xFF"}) {
      std::string text;
      while (text.size() < kLength) text += piece;
      size_t total = 0;
      pre_tokenizer->Split(text, [&](std::string_view word) { total += word.size(); });
      EXPECT_EQ(total, text.size()) << name << " " << piece;
    }
  }
}

TEST(PreTokenizerTest, ThreadsMayShareOne) {
  const absl::StatusOr<PreTokenizer> pre_tokenizer = PreTokenizer::Create("smollm");
  ASSERT_TRUE(pre_tokenizer.ok());
  const std::string text = RandomText(1).Utf8(2000);
  const Words expected = Split(*pre_tokenizer, text);
  std::vector<Words> words(4);
  std::vector<std::thread> threads;
  for (Words& out : words) {
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i) out = Split(*pre_tokenizer, text);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(words, testing::Each(expected));
}

}  // namespace
}  // namespace sluice::engine
