#include "engine/text/testing/small_vocabulary.h"

#include <algorithm>
#include <string>
#include <utility>

#include "engine/text/byte_alphabet.h"
#include "glog/logging.h"

namespace sluice::engine {

TokenizerData SmallVocabulary(std::string_view pre_tokenizer) {
  TokenizerData data;
  data.model = "gpt2";
  data.pre_tokenizer = pre_tokenizer;
  const auto add = [&](std::string token, TokenType type) {
    data.tokens.push_back(std::move(token));
    data.types.push_back(type);
  };
  for (const char* const name : {"<|end|>", "<|im_start|>", "<|im_end|>", "<|im_end|>|"})
    add(name, TokenType::kControl);
  add("<tool>", TokenType::kUserDefined);
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    add(SpellingOfBytes({&c, 1}), TokenType::kNormal);
  }
  const std::pair<std::string_view, std::string_view> merges[] = {
      {"t", "h"},       {"th", "e"},          {" ", "the"},   {"l", "l"},       {"e", "ll"},
      {"h", "ell"},     {"hell", "o"},        {" ", "hello"}, {" ", " "},       {"  ", "  "},
      {"\r", "\n"},     {"a", "a"},           {"aa", "aa"},   {"aaaa", "aaaa"}, {"\xC3", "\xA9"},
      {"\xE4", "\xB8"}, {"\xE4\xB8", "\xAD"}, {"1", "2"},     {"i", "m"},
  };
  for (const auto& [left, right] : merges) {
    data.merges.push_back(SpellingOfBytes(left) + " " + SpellingOfBytes(right));
    add(SpellingOfBytes(std::string(left).append(right)), TokenType::kNormal);
  }
  data.bos_id = 1;
  data.eos_id = 2;
  data.eog_ids = {0, 2};
  return data;
}

int32_t IdOf(const TokenizerData& data, std::string_view token) {
  auto found = std::find(data.tokens.begin(), data.tokens.end(), SpellingOfBytes(token));
  if (found == data.tokens.end()) found = std::find(data.tokens.begin(), data.tokens.end(), token);
  CHECK(found != data.tokens.end()) << "no token " << std::string(token);
  return static_cast<int32_t>(found - data.tokens.begin());
}

}  // namespace sluice::engine
