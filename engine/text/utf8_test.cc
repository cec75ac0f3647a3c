#include "engine/text/utf8.h"

#include <cstdint>
#include <iterator>
#include <optional>
#include <string>

#include "engine/text/testing/random_text.h"
#include "gtest/gtest.h"

namespace sluice::engine {
namespace {

std::string Encode(uint32_t c) {
  if (c < 0x80) return {static_cast<char>(c)};
  if (c < 0x800) return {static_cast<char>(0xC0 | c >> 6), static_cast<char>(0x80 | (c & 0x3F))};
  if (c < 0x10000) {
    return {static_cast<char>(0xE0 | c >> 12), static_cast<char>(0x80 | (c >> 6 & 0x3F)),
            static_cast<char>(0x80 | (c & 0x3F))};
  }
  return {static_cast<char>(0xF0 | c >> 18), static_cast<char>(0x80 | (c >> 12 & 0x3F)),
          static_cast<char>(0x80 | (c >> 6 & 0x3F)), static_cast<char>(0x80 | (c & 0x3F))};
}

TEST(Utf8Test, EveryCodePointIsOneCharacterAndItsPrefixesAreIncomplete) {
  for (uint32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    const std::string character = Encode(c);
    const Utf8Step step = NextUtf8(character + "x");
    ASSERT_TRUE(step.kind == Utf8Kind::kCharacter && step.length == character.size()) << c;
    for (size_t n = 1; n < character.size(); ++n) {
      const Utf8Step prefix = NextUtf8(character.substr(0, n));
      ASSERT_TRUE(prefix.kind == Utf8Kind::kIncomplete && prefix.length == n) << c;
      ASSERT_EQ(IncompleteTail("é" + character.substr(0, n)), n) << c;
    }
    ASSERT_EQ(IncompleteTail(character), 0u) << c;
  }
}

TEST(Utf8Test, SurrogatesAndOverlongFormsAreInvalidFromTheirFirstByte) {
  for (uint32_t c = 0xD800; c < 0xE000; ++c) {
    const Utf8Step step = NextUtf8(Encode(c));
    ASSERT_TRUE(step.kind == Utf8Kind::kInvalid && step.length == 1) << c;
  }
  for (const char* const text : {"\xC0\x80", "\xC1\xBF", "\xE0\x80\x80", "\xE0\x9F\xBF", "\xF0\x80\x80\x80",
                                 "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF", "\x80"}) {
    const Utf8Step step = NextUtf8(text);
    EXPECT_TRUE(step.kind == Utf8Kind::kInvalid && step.length == 1) << text;
  }
}

// The example of Unicode 15.0, table 3-8: U+FFFD for ill-formed sequences, by maximal subparts; 3-11: truncated ones.
TEST(Utf8Test, MaximalSubpartsOfTheUnicodeStandard) {
  const auto decode = [](std::string_view text) {
    std::string out;
    for (; !text.empty(); text.remove_prefix(NextUtf8(text).length)) {
      const Utf8Step step = NextUtf8(text);
      out += step.kind == Utf8Kind::kCharacter ? text.substr(0, step.length) : "?";
    }
    return out;
  };
  EXPECT_EQ(decode("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"), "????????A");
  EXPECT_EQ(decode("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41"), "????????A");
  EXPECT_EQ(decode("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42"), "?????A??B");
  EXPECT_EQ(decode("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), "????A");
}

TEST(Utf8Test, ValidPrefixEndsWhereTheFirstStepThatIsNoCharacterBegins) {
  const uint64_t seed = TestSeed();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  RandomText random(seed);
  for (int i = 0; i < 20000; ++i) {
    const std::string text = random.Utf8(10) + random.Bytes(4) + random.Utf8(4);
    size_t expected = 0;
    while (expected < text.size()) {
      const Utf8Step step = NextUtf8(std::string_view(text).substr(expected));
      if (step.kind != Utf8Kind::kCharacter) break;
      expected += step.length;
    }
    ASSERT_EQ(ValidPrefix(text), expected) << testing::PrintToString(text);
  }
}

}  // namespace
}  // namespace sluice::engine
