// Cuts a template into text and the tokens of its tags, as jinja2 does with trim_blocks and lstrip_blocks: the newline
// after a block tag goes, and so do spaces between the beginning of a line and a block tag; `-` takes all white space
// there, `+` keeps it.
//
// Throws Error with the line for what is no template.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::engine::jinja {

enum class TokenKind : uint8_t {
  kText,  // outside of tags
  kOutputBegin,
  kOutputEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenKind kind;
  std::string text;  // of strings: what they say; of operators: as written
  int line;
  int64_t integer = 0;
  double real = 0;
};

// Ends with kEnd.
std::vector<Token> Lex(std::string_view source);

}  // namespace sluice::engine::jinja
