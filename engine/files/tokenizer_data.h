// The vocabulary as a model file carries it; engine/text builds a Tokenizer from it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sluice::engine {

enum class TokenType : uint8_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };

struct TokenizerData {
  std::string model;                // "gpt2": byte-level BPE
  std::string pre_tokenizer;        // name of the splitting regex: "smollm", "llama-bpe", ...
  std::vector<std::string> tokens;  // by id; byte-level BPE spells bytes as the GPT-2 printable characters
  std::vector<TokenType> types;     // parallel to tokens
  std::vector<std::string> merges;  // "left right", best first
  int32_t bos_id = -1;              // -1: none
  int32_t eos_id = -1;
  std::vector<int32_t> eog_ids;  // every token that ends an answer (eos, end of turn), eos included
  bool add_bos = false;
  bool add_eos = false;
  std::string chat_template;  // Jinja, empty: none
};

}  // namespace sluice::engine
