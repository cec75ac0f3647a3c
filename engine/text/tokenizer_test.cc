#include "engine/text/tokenizer.h"

#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/text/testing/random_text.h"
#include "engine/text/testing/small_vocabulary.h"
#include "engine/text/utf8.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice::engine {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Ids = std::vector<int32_t>;

class TokenizerTest : public testing::Test {
 protected:
  static std::unique_ptr<Tokenizer> Make(const TokenizerData& data) {
    absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = Tokenizer::Create(data);
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
    return *std::move(tokenizer);
  }

  // The ids of tokens by name or bytes.
  Ids Of(const std::vector<std::string>& tokens) const {
    Ids ids;
    for (const std::string& token : tokens) ids.push_back(IdOf(data_, token));
    return ids;
  }

  static std::string Text(const Tokenizer& tokenizer, const Ids& ids) {
    std::string text;
    for (const int32_t id : ids) text += tokenizer.TokenBytes(id);
    return text;
  }

  TokenizerData data_ = SmallVocabulary();
};

TEST_F(TokenizerTest, MergesWithinWords) {
  const auto tokenizer = Make(data_);
  EXPECT_EQ(tokenizer->Encode("hello the hello", SpecialText::kParse), Of({"hello", " the", " hello"}));
  EXPECT_EQ(tokenizer->Encode("th e", SpecialText::kParse), Of({"th", " ", "e"}));
  EXPECT_EQ(tokenizer->Encode("é中\r\n", SpecialText::kParse), Of({"é", "中", "\r\n"}));
  EXPECT_THAT(tokenizer->Encode("", SpecialText::kParse), ElementsAre());
}

TEST_F(TokenizerTest, NamesOfControlTokensCountOnlyInRawText) {
  const auto tokenizer = Make(data_);
  const std::string text = "<|im_start|>the<|im_end|>";
  EXPECT_EQ(tokenizer->Encode(text, SpecialText::kParse), Of({"<|im_start|>", "the", "<|im_end|>"}));
  const Ids plain = tokenizer->Encode(text, SpecialText::kPlain);
  for (const int32_t id : plain) EXPECT_FALSE(tokenizer->IsControl(id));
  EXPECT_EQ(Text(*tokenizer, plain), text);
}

TEST_F(TokenizerTest, UserDefinedTokensCountInAnyText) {
  const auto tokenizer = Make(data_);
  for (const SpecialText special : {SpecialText::kParse, SpecialText::kPlain}) {
    EXPECT_EQ(tokenizer->Encode("the<tool>the", special), Of({"the", "<tool>", "the"}));
  }
}

TEST_F(TokenizerTest, TheLongestNameWinsAndNamesMayTouch) {
  const auto tokenizer = Make(data_);
  EXPECT_EQ(tokenizer->Encode("<|im_end|>|<|im_end|><|end|>|", SpecialText::kParse),
            Of({"<|im_end|>|", "<|im_end|>", "<|end|>", "|"}));
  EXPECT_EQ(tokenizer->Encode("<<|end|>>", SpecialText::kParse), Of({"<", "<|end|>", ">"}));
  EXPECT_EQ(Text(*tokenizer, tokenizer->Encode("<|im_en", SpecialText::kParse)), "<|im_en");
}

TEST_F(TokenizerTest, BeginningAndEndAreAddedIfTheFileSaysSo) {
  EXPECT_EQ(Make(data_)->Encode("the", SpecialText::kParse), Of({"the"}));
  data_.add_bos = true;
  data_.add_eos = true;
  const auto tokenizer = Make(data_);
  EXPECT_EQ(tokenizer->Encode("the", SpecialText::kPlain), Of({"<|im_start|>", "the", "<|im_end|>"}));
  EXPECT_EQ(tokenizer->Encode("the", SpecialText::kPlain, false), Of({"the"}));
  EXPECT_EQ(tokenizer->Encode("", SpecialText::kPlain), Of({"<|im_start|>", "<|im_end|>"}));
}

TEST_F(TokenizerTest, TokenBytesOfEachType) {
  const auto add = [&](std::string token, TokenType type) {
    data_.tokens.push_back(std::move(token));
    data_.types.push_back(type);
    return static_cast<int32_t>(data_.tokens.size()) - 1;
  };
  const int32_t unknown = add("<unk>", TokenType::kUnknown);
  const int32_t byte = add("<0x0A>", TokenType::kByte);
  const int32_t unused = add("[PAD1]", TokenType::kUnused);
  const int32_t unused_too = add("[PAD1]", TokenType::kUnused);
  const int32_t other = add("中文", TokenType::kNormal);  // not of the byte alphabet
  const auto tokenizer = Make(data_);
  EXPECT_EQ(tokenizer->TokenBytes(IdOf(data_, " the")), " the");
  EXPECT_EQ(tokenizer->TokenBytes(kFirstByte + 0xFF), "\xFF");
  EXPECT_EQ(tokenizer->TokenBytes(1), "<|im_start|>");
  EXPECT_EQ(tokenizer->TokenBytes(4), "<tool>");
  EXPECT_EQ(tokenizer->TokenBytes(unknown), "<unk>");
  EXPECT_EQ(tokenizer->TokenBytes(byte), "\n");
  EXPECT_EQ(tokenizer->TokenBytes(unused), "");
  EXPECT_EQ(tokenizer->TokenBytes(unused_too), "");
  EXPECT_EQ(tokenizer->TokenBytes(other), "中文");
  EXPECT_EQ(tokenizer->TokenBytes(-1), "");
  EXPECT_EQ(tokenizer->TokenBytes(tokenizer->vocab_size()), "");
  EXPECT_EQ(tokenizer->vocab_size(), static_cast<int>(data_.tokens.size()));
  EXPECT_TRUE(tokenizer->IsControl(0) && tokenizer->IsControl(unknown));
  for (const int32_t id : {-1, 4, kFirstByte, byte, unused, tokenizer->vocab_size()}) {
    EXPECT_FALSE(tokenizer->IsControl(id)) << id;
  }
}

// As SmolLM2's, the vocabulary lacks bytes: in well-formed text they are left out, as Hugging Face tokenizers does;
// bytes that are no UTF-8 show as U+FFFD, unless the vocabulary has them.
TEST_F(TokenizerTest, BytesThatTheVocabularyLacks) {
  for (const int byte : {0x04, 0xC0, 0xFF}) data_.types[kFirstByte + byte] = TokenType::kUnused;
  data_.tokens.push_back("<0xFF>");
  data_.types.push_back(TokenType::kByte);
  const auto tokenizer = Make(data_);
  EXPECT_EQ(tokenizer->Encode("t\x04h", SpecialText::kParse), Of({"t", "h"}));
  EXPECT_EQ(Text(*tokenizer, tokenizer->Encode("a\xC0\xFE\xFF", SpecialText::kParse)), "a\uFFFD\xFE\xFF");
}

TEST_F(TokenizerTest, MergesMayResultInUserDefinedTokens) {
  data_.merges.push_back("h i");
  data_.tokens.push_back("hi");
  data_.types.push_back(TokenType::kUserDefined);
  EXPECT_EQ(Make(data_)->Encode("hi", SpecialText::kPlain), Of({"hi"}));
}

TEST_F(TokenizerTest, DamagedVocabulariesAreRefused) {
  struct Case {
    std::function<void(TokenizerData&)> damage;
    std::string says;
    absl::StatusCode code = absl::StatusCode::kInvalidArgument;
  };
  const Case cases[] = {
      {[](auto& d) { d.model = "llama"; }, "\"llama\"", absl::StatusCode::kUnimplemented},
      {[](auto& d) { d.pre_tokenizer = "no-such"; }, "\"no-such\"", absl::StatusCode::kUnimplemented},
      {[](auto& d) { d.tokens.clear(), d.types.clear(); }, "no tokens"},
      {[](auto& d) { d.types.pop_back(); }, "types"},
      {[](auto& d) { d.types[7] = static_cast<TokenType>(9); }, "token 7"},
      {[](auto& d) { d.tokens[8] = d.tokens[7]; }, "token 8"},
      {[](auto& d) { d.tokens[2] = d.tokens[1]; }, "token 2 \"<|im_start|>\""},
      {[](auto& d) { d.types[9] = TokenType::kByte; }, "byte token 9"},
      {[](auto& d) { d.tokens[9] = "<0xG1>", d.types[9] = TokenType::kByte; }, "byte token 9"},
      {[](auto& d) { d.merges[3] = "l nowhere"; }, "merge 3 \"l nowhere\""},
      {[](auto& d) { d.merges[3] = "t z"; }, "merge 3 \"t z\""},
      {[](auto& d) { d.merges[3] = "lonely"; }, "merge 3 \"lonely\""},
      {[](auto& d) { d.bos_id = 100000; }, "100000"},
      {[](auto& d) { d.eos_id = -2; }, "-2"},
      {[](auto& d) {
         d.eog_ids = {0, -1};
       },
       "-1"},
      {[](auto& d) { d.add_bos = true, d.bos_id = -1; }, "bos_token_id"},
      {[](auto& d) { d.add_eos = true, d.eos_id = -1; }, "eos_token_id"},
  };
  for (const Case& c : cases) {
    TokenizerData data = data_;
    c.damage(data);
    const absl::Status status = Tokenizer::Create(data).status();
    EXPECT_EQ(status.code(), c.code) << status << " should say " << c.says;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.says));
  }
}

TEST_F(TokenizerTest, AnyBytesSurviveTheRoundTrip) {
  const uint64_t seed = TestSeed();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  RandomText random(seed);
  for (const char* const name : {"gpt-2", "smollm", "llama-bpe", "qwen2", "deepseek-v3"}) {
    const auto tokenizer = Make(SmallVocabulary(name));
    for (int i = 0; i < 2000; ++i) {
      const std::string text = random.Utf8(20) + random.Bytes(6) + random.Utf8(6);
      for (const SpecialText special : {SpecialText::kParse, SpecialText::kPlain}) {
        ASSERT_EQ(Text(*tokenizer, tokenizer->Encode(text, special)), text) << testing::PrintToString(text);
      }
    }
  }
}

TEST_F(TokenizerTest, LongInputs) {
  const auto tokenizer = Make(SmallVocabulary("smollm"));
  constexpr size_t kLength = 1 << 20;
  EXPECT_EQ(tokenizer->Encode(std::string(kLength, 'a'), SpecialText::kParse).size(), kLength / 8);
  EXPECT_EQ(tokenizer->Encode(std::string(kLength, ' '), SpecialText::kParse).size(), kLength / 4);
  EXPECT_EQ(tokenizer->Encode(std::string(kLength, '<'), SpecialText::kParse).size(), kLength);
  EXPECT_EQ(tokenizer->Encode(std::string(kLength, '\xFF'), SpecialText::kParse).size(), kLength);
}

TEST_F(TokenizerTest, ThreadsMayShareOne) {
  const auto tokenizer = Make(data_);
  const std::string text = RandomText(3).Utf8(1000);
  const Ids expected = tokenizer->Encode(text, SpecialText::kParse);
  std::vector<Ids> ids(4);
  std::vector<std::thread> threads;
  for (Ids& out : ids) {
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i) out = tokenizer->Encode(text, SpecialText::kParse);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(ids, testing::Each(expected));
}

}  // namespace
}  // namespace sluice::engine
