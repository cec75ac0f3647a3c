#include "engine/text/byte_alphabet.h"

#include <set>

#include "engine/text/utf8.h"
#include "gtest/gtest.h"

namespace sluice::engine {
namespace {

// GPT-2's vocabulary spells these so.
TEST(ByteAlphabetTest, KnownSpellings) {
  EXPECT_EQ(SpellingOfBytes(" hello\n"), "ĠhelloĊ");
  EXPECT_EQ(SpellingOfBytes("é"), "Ã©");
  EXPECT_EQ(SpellingOfBytes({"\0\x7F\xAD\xFF", 4}), "ĀġŃÿ");
}

TEST(ByteAlphabetTest, EveryByteHasACharacterOfItsOwn) {
  std::set<std::string> spellings;
  for (int byte = 0; byte < 256; ++byte) {
    const std::string bytes(1, static_cast<char>(byte));
    const std::string spelling = SpellingOfBytes(bytes);
    EXPECT_EQ(ValidPrefix(spelling), spelling.size());
    EXPECT_EQ(BytesFromSpelling(spelling), bytes);
    spellings.insert(spelling);
  }
  EXPECT_EQ(spellings.size(), 256u);
}

TEST(ByteAlphabetTest, OtherCharactersAreNotOfTheAlphabet) {
  for (const char* const text :
       {" ", "\n", "\u00A0", "\u00AD", "ń", "中", "😀", "a b", "\xC3", "\xFF", "\xC0\x80", "\xC4\x41"}) {
    EXPECT_EQ(BytesFromSpelling(text), std::nullopt) << text;
  }
  EXPECT_EQ(BytesFromSpelling("Ń"), "\xAD");  // the last one, U+0143
  EXPECT_EQ(BytesFromSpelling(""), "");
}

}  // namespace
}  // namespace sluice::engine
